"""Where reports come from and where campaigns go: the server's own endpoint for devices, or an external broker."""

import contextlib
import secrets
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from undertone_aggregator.base.log import Journal
from undertone_aggregator.base.open_files import FILES, limit, ran_out
from undertone_aggregator.ingest.ingest import IngestPlan, Say
from undertone_aggregator.ingest.shared_plan import write_plan
from undertone_aggregator.ingest.shared_workers import OpenIntake
from undertone_aggregator.mqtt.addresses import (
    PLAIN_PORT,
    TLS_PORT,
    brokers_as_json,
    external_addresses,
    outlet_address,
)
from undertone_aggregator.mqtt.endpoint.passwords import password_matches, read_passwords
from undertone_aggregator.mqtt.link import Address, Outlet, Outlets, always
from undertone_aggregator.mqtt.mosquitto import CONFIG_FILE, reload_running
from undertone_aggregator.mqtt.sessions import open_intake, take_over
from undertone_aggregator.settings.config import Config
from undertone_aggregator.store.disk_space import retry_while_full
from undertone_aggregator.store.store import Store
from undertone_shared.errors import Invalid
from undertone_shared.topics import config_topic


class Outgoing(Protocol):
    """The publisher that a coordinator uses; `Outlet` is one.

    ``dropped``: number of messages that the broker dropped. ``stored``: number that it holds. Both are None if unknown.
    ``heard``: the newest campaign message of each topic, whoever published it.
    """

    @property
    def dropped(self) -> int | None: ...

    @property
    def stored(self) -> int | None: ...

    @property
    def connected(self) -> bool: ...

    @property
    def heard(self) -> dict[str, bytes]: ...

    @property
    def settled(self) -> bool:
        """True if the broker is connected, and workers have had time to connect again since it last came back."""

    def retained(self, topic: str, stop: threading.Event) -> bytes | None:
        """Wait for the broker or ``stop``. Return the campaign message that the topic holds; None without one."""

    def start(self) -> None:
        """Start to publish."""

    def publish(
        self, topic: str, payload: bytes, *, again: bool = False, permitted: Callable[[], bool] = always
    ) -> None:
        """Publish a retained message now, if connected.

        With ``again``, publish it also at every later connect at which ``permitted()`` is true.
        """

    def stop(self) -> None:
        """Disconnect."""


class Source(Protocol):
    """A source of reports: the endpoint to which devices connect, or an external broker."""

    @property
    def files(self) -> Sequence[Path]:
        """Files of passwords, access rules and certificates: call ``reload`` when they change."""

    @property
    def outlives(self) -> bool:
        """True if the files are those of a broker that started before this server and continues after it."""

    @property
    def open_intake(self) -> OpenIntake:
        """Function that opens the intake of one worker."""

    def serve(self, campaigns: Collection[str]) -> None:
        """From now on keep reports for these campaigns of the server, even while one of them does not run."""

    def take_over(
        self,
        store: Store,
        plan: IngestPlan,
        say: Say,
        clock: Callable[[], float],
        stop: threading.Event,
        taken: Collection[int] = (),
    ) -> IngestPlan:
        """Prepare the plan's workers to take over the campaign's reports, and return the plan.

        No worker may run meanwhile. ``taken``: slots (numbers of broker users) that other campaigns hold.
        """

    def outlet(self, prefix: str, say: Say) -> Outgoing:
        """Return the outlet for campaigns and estimates, not yet started."""

    def reload(self) -> None:
        """Read passwords and certificates again. On an error, raise Invalid or OSError and keep the old ones."""

    def facts(self) -> Mapping[str, Any]:
        """Return the source's own counters for the log and for health."""


class BrokerSource:
    """Source of reports at one or more brokers. ``files``: files that the brokers read, passwords first.

    ``again``: a function that makes the broker read the files, if the broker belongs to this installation.
    ``outlives``: see `Source`.
    """

    def __init__(
        self,
        addresses: Sequence[Address],
        files: Sequence[Path] = (),
        again: Callable[[], object] = lambda: None,
        *,
        outlives: bool = False,
    ) -> None:
        self.outlives = outlives
        self._addresses = tuple(addresses)
        self.files = tuple(files)
        self._again = again

    @property
    def open_intake(self) -> OpenIntake:
        """Function that opens a session at the broker for each worker."""
        return partial(open_intake, self._addresses)

    def serve(self, campaigns: Collection[str]) -> None:
        """Do nothing: the broker keeps reports for each campaign's sessions."""

    def take_over(
        self,
        store: Store,
        plan: IngestPlan,
        say: Say,
        clock: Callable[[], float],
        stop: threading.Event,
        taken: Collection[int] = (),
    ) -> IngestPlan:
        """Move the sessions at the broker to the plan's number of workers."""
        plan = take_over(store, plan, self._addresses, say, clock, stop, taken)
        if plan.lease_seconds:
            write_plan(store, plan, brokers_as_json(self._addresses))
        return plan

    def outlet(self, prefix: str, say: Say) -> Outgoing:
        """Return an outlet with its own connections, which also receive campaigns that others publish."""
        name = f"undertone-{secrets.token_hex(16)}-coordinator"
        outlets = [Outlet(address, name, say, [config_topic(prefix, "+")]) for address in self._addresses]
        return outlets[0] if len(outlets) == 1 else Outlets(outlets)

    def reload(self) -> None:
        """Make the broker read its files again; it disconnects users that are no longer in them.

        Raises Invalid if this server's own password would become invalid: messages for its sessions would be dropped.
        """
        for path in self.files[:1]:
            own = self._addresses[0]
            entry = read_passwords(path).get(own.user)
            if entry is not None and not password_matches(entry, own.password):
                raise Invalid("this server's own password was changed: start the broker again, and then the server")
        self._again()

    def facts(self) -> Mapping[str, Any]:
        """Return an empty mapping, because this source has no counters of its own."""
        return {}


def open_source(config: Config, journal: Journal) -> contextlib.AbstractContextManager[Source]:
    """Open the report source that [broker] mode names, see `undertone_aggregator.settings.report_sources`.

    In mode direct, the endpoint runs until the context ends. Raises Invalid or OSError.
    """
    kind = config.broker.source
    opener: Callable[[Config, Journal], contextlib.AbstractContextManager[Source]]
    opener = getattr(import_module(kind.module), kind.opener)
    return opener(config, journal)


def enter_source(
    opened: contextlib.ExitStack, config: Config, journal: Journal, stop: threading.Event
) -> Source | None:
    """Enter the context of `open_source` until ``opened`` closes. While the disk is full, wait and try again.

    Returns None if ``stop`` was set meanwhile.
    """
    return retry_while_full(
        lambda: opened.enter_context(open_source(config, journal)),
        lambda sentence: journal.say_once("room", sentence),
        stop,
    )


@contextlib.contextmanager
def external_broker(config: Config, journal: Journal) -> Iterator[Source]:
    """Use a broker that this server does not run.

    If `init` made the broker's files here, ``reload`` makes the broker read them again.
    """
    directory = config.path(config.broker.directory)
    files = [directory / name for name in ("passwords", "access", CONFIG_FILE)]
    if not all(path.is_file() for path in files):
        yield BrokerSource(external_addresses(config))
        return
    again = partial(reload_running, directory)
    watched = [*files[:2], directory / "server.key", directory / "server.crt"]
    yield BrokerSource(external_addresses(config), watched, again, outlives=True)


@contextlib.contextmanager
def direct_endpoint(config: Config, journal: Journal) -> Iterator[Source]:
    """Run the endpoint that devices connect to, which listens within the context. Raises Invalid or OSError."""
    from undertone_aggregator.base.room import room
    from undertone_aggregator.mqtt.credentials import servers_names
    from undertone_aggregator.mqtt.endpoint.gate import Gate
    from undertone_aggregator.mqtt.endpoint.listener import Listener
    from undertone_aggregator.mqtt.endpoint.source import DirectSource

    settings = config.broker
    certificate = _named(config, settings.certificate)
    port = settings.port or (PLAIN_PORT if certificate is None else TLS_PORT)
    authority = _named(config, settings.ca_file)
    key, websocket = _named(config, settings.key), settings.websocket_place
    found = room(settings.connections, limit()[0])
    listener = Listener(settings.host, port, certificate, key, authority, websocket)
    listener.check()
    source = DirectSource(
        listener,
        Gate(config.path(settings.passwords), servers_names(), _named(config, settings.access)),
        settings.prefix,
        config.server.batch,
        lambda sentence: journal.say_once("endpoint", sentence),
        found,
        outlet_address(config),
        lambda: journal.say_once(FILES, ran_out()),
    )
    how = "without TLS" if certificate is None else "by TLS"
    also = "" if settings.websocket is None else f", and by WebSocket to {settings.websocket}"
    journal.say(
        "endpoint",
        f"devices connect to {settings.host}:{port} {how}{also}; at most {found.connections} at once, because of"
        f" {found.why}",
        port=port,
        connections=found.connections,
    )
    with source.endpoint:
        yield source


def _named(config: Config, name: str | None) -> Path | None:
    return None if name is None else config.path(name)
