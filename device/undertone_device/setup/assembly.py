"""Assembly of a client from a configuration, on boards, gateways and phones."""

import errno
import os

from undertone_device import unload
from undertone_device.core.reporter import Reporter
from undertone_device.mqtt.client import Client, Platform
from undertone_device.mqtt.session_transport import SessionTransport
from undertone_device.mqtt.socket_connection import CONNECT_MILLISECONDS, opener
from undertone_device.setup.storage import LARGEST_SECRET, FileStorage, read_bounded
from undertone_device.setup.tls_context import system_context, verified_context
from undertone_shared.entropy import Entropy
from undertone_shared.errors import Invalid
from undertone_shared.policy import LARGEST, parse_policy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from undertone_device.core.ledger import Storage
    from undertone_device.mqtt.protocols import Transport
    from undertone_device.setup.config import BrokerSettings, DeviceConfig
    from undertone_shared.policy import Policy

_LARGEST_CA = 65536


def read_policy(config: "DeviceConfig") -> "Policy":
    """Read the owner's policy. Raises Invalid, naming the file."""
    try:
        return parse_policy(read_bounded(config.policy, LARGEST))
    except Invalid as error:
        raise Invalid("%s: %s" % (config.policy, error))


def read_password(broker: "BrokerSettings") -> "str | None":
    """Return the given password, or that in its file without the line's end; None without both. Raises Invalid."""
    if broker.password_file is None:
        return broker.password
    data = read_bounded(broker.password_file, LARGEST_SECRET)
    try:
        password = data.decode().strip("\r\n")
    except (UnicodeError, ValueError):
        password = ""
    if not password or len(data) > LARGEST_SECRET:
        raise Invalid("%s holds no password of 1 to %d bytes, as UTF-8" % (broker.password_file, LARGEST_SECRET))
    return password


def tls_context(broker: "BrokerSettings", policy: "Policy") -> "Any":
    """Make the verified TLS context; None if the policy is insecure and no ``tls`` is configured. Raises Invalid."""
    if broker.tls is None:
        if not policy.insecure:
            raise Invalid('broker has no tls, and the policy does not say "insecure": true')
        return None
    context = verified_context(read_bounded(broker.tls, _LARGEST_CA), broker.tls) if broker.tls else system_context()
    if broker.identity:
        from undertone_device.setup import identity

        identity.load(context, broker.identity)
    return context


def apply_handover(config: "DeviceConfig", policy: "Policy") -> None:
    """Put what the last hand-over has asked for into the configuration, if there was a hand-over. Raises OSError."""
    try:
        os.stat(config.state)
    except OSError:
        # The device is new and has no state folder yet. `make_client` reports any other error.
        return
    if policy.handover and FileStorage(config.state).read("handover"):
        from undertone_device.core import handover

        handover.apply(config, FileStorage(config.state))
        unload(handover.__name__)


def board_transport(
    config: "DeviceConfig",
    policy: "Policy",
    ticks: "Callable[[], int]",
    milliseconds: int = CONNECT_MILLISECONDS,
    alive: "Callable[[], None] | None" = None,
) -> SessionTransport:
    """Make the transport of boards; connecting to one address may take ``milliseconds``. Raises Invalid, OSError."""
    broker = config.broker
    context = tls_context(broker, policy)
    apply_handover(config, policy)
    return SessionTransport(
        opener(broker.places, context, milliseconds, alive),
        ticks,
        config.name,
        broker.user,
        read_password(broker),
        broker.keepalive,
        broker.places,
    )


def _state_folder(path: str) -> str:
    """Make the device's folder if needed; return its path. Raises Invalid."""
    try:
        try:
            os.mkdir(path)
        except OSError as error:
            if error.errno != errno.EEXIST:
                raise
        os.listdir(path)
    except OSError as error:
        raise Invalid("state is %r, expected a folder: %s" % (path, error))
    return path


def make_client(
    config: "DeviceConfig",
    policy: "Policy",
    transport: "Transport",
    platform: Platform,
    asleep: "int | None" = None,
    storage: "Storage | None" = None,
) -> Client:
    """Make the client over ``storage``; by default over the state folder, which is made if needed.

    Raises Invalid, OSError for a ledger that cannot be read, and EntropyError without a byte source.
    """
    reporter = Reporter(
        config.name,
        policy,
        storage or FileStorage(_state_folder(config.state)),
        Entropy(),
        platform.ticks,
        config.counter_modulus,
        config.outbox,
        asleep,
    )
    reporter.accepted.successors = config.successors
    return Client(reporter, transport, config, platform)
