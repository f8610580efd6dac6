"""The direct endpoint in a test: a password file, an endpoint, and devices that use the device's own codec."""

import contextlib
import socket
import ssl
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from undertone_aggregator.ingest.intake import Delivery
from undertone_aggregator.mqtt import credentials
from undertone_aggregator.mqtt.endpoint.endpoint import CampaignIntake, Endpoint
from undertone_aggregator.mqtt.endpoint.gate import Gate
from undertone_aggregator.mqtt.endpoint.limits import Limits
from undertone_aggregator.mqtt.endpoint.listener import Listener
from undertone_device.mqtt import packets
from undertone_shared.topics import config_topic, report_topic

PREFIX = "undertone-test/direct"
CAMPAIGN = "meters"
CONFIG = config_topic(PREFIX, CAMPAIGN)
SLOT_SECONDS = 3600


def password(user: str) -> str:
    """Return the password of a user in these tests."""
    return f"the password of {user}"


def write_passwords(path: Path, users: Sequence[str]) -> Path:
    """Write the password file for these users."""
    credentials.write_passwords(path, {user: password(user) for user in users})
    return path


class OneCampaign(Endpoint):
    """An endpoint with one campaign. It also has the methods ``take`` and ``acknowledge`` of the campaign's intake."""

    intake: CampaignIntake

    def take(self, seconds: float) -> list[Delivery]:
        return self.intake.take(seconds)

    def acknowledge(self, deliveries: Sequence[Delivery]) -> None:
        self.intake.acknowledge(deliveries)


@contextlib.contextmanager
def open_endpoint(
    path: Path,
    limits: Limits | None = None,
    listener: Listener | None = None,
    access: Path | None = None,
    **options: Any,
) -> Iterator[OneCampaign]:
    """An endpoint with one campaign that listens on a free port of the loopback address."""
    where = Listener(port=0) if listener is None else listener
    gate = Gate(path, credentials.servers_names(), access)
    with OneCampaign(where, gate, limits or Limits(), PREFIX, **options) as made:
        made.listen()
        made.intake = made.open(CAMPAIGN, SLOT_SECONDS)
        yield made


def write_home(folder: Path, port: int, users: Sequence[str] = (), prefix: str = PREFIX, more: str = "") -> None:
    """Write the folder of a server to which its devices connect directly.

    ``more``: further lines of [broker], and tables.
    """
    (folder / "broker").mkdir(parents=True, exist_ok=True)
    write_passwords(folder / "broker/passwords", users)
    lines = f'mode = "direct"\npasswords = "broker/passwords"\nport = {port}\nprefix = "{prefix}"\n'
    (folder / "server.toml").write_text(f"[broker]\n{lines}{more}", encoding="utf-8")


def topic(device: str) -> str:
    """The topic to which a device publishes its reports."""
    return report_topic(PREFIX, CAMPAIGN, device)


class Device:
    """A device's codec on a blocking socket. ``events`` holds the events that were not waited for yet."""

    def __init__(
        self,
        port: int,
        user: str,
        *,
        client_id: str | None = None,
        secret: str | None = None,
        keepalive: int = 60,
        context: ssl.SSLContext | None = None,
    ) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        if context is not None:
            self.socket = context.wrap_socket(self.socket, server_hostname="localhost")
        self.session = packets.ClientSession(keepalive)
        self.user = user
        self.events: list[Any] = []
        self.session.connect(client_id or user, user, secret or password(user), 0)
        self.flush()

    def flush(self) -> None:
        """Send the packets that are queued."""
        self.socket.sendall(self.session.output())

    def publish(self, payloads: Sequence[bytes], to: str | None = None) -> list[int]:
        """Send reports in one write; return their packet ids."""
        numbers = [self.session.publish(to or topic(self.user), payload, 0) for payload in payloads]
        self.flush()
        return numbers

    def subscribe(self, to: str = CONFIG) -> None:
        """Subscribe to a topic."""
        self.session.subscribe(to, 0)
        self.flush()

    def wait(self, what: str, seconds: float = 60.0, count: int = 1) -> list[Any]:
        """Return the next ``count`` events of this kind.

        Raises AssertionError if they do not come, and ConnectionError if the connection ends.
        """
        deadline = time.monotonic() + seconds
        while sum(event[0] == what for event in self.events) < count:
            self.socket.settimeout(max(0.001, deadline - time.monotonic()))
            try:
                data = self.socket.recv(1 << 16)
            except TimeoutError:
                raise AssertionError(f"no {what} within {seconds} s, but {self.events}") from None
            if not data:
                raise ConnectionError("closed")
            self.events += self.session.receive(data, 0)
        chosen = [event for event in self.events if event[0] == what][:count]
        self.events = [event for event in self.events if event not in chosen]
        return chosen

    def closed(self, seconds: float = 60.0) -> bool:
        """Whether the server ends the connection within so many seconds."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.socket.settimeout(max(0.001, deadline - time.monotonic()))
            try:
                if not self.socket.recv(1 << 16):
                    return True
            except TimeoutError:
                return False
            except OSError:
                return True
        return False

    def close(self) -> None:
        """Close the connection without a DISCONNECT."""
        self.socket.close()


def raw(port: int, data: bytes) -> socket.socket:
    """Return a connection that has sent these bytes."""
    made = socket.create_connection(("127.0.0.1", port), timeout=60)
    made.sendall(data)
    return made


def ended(made: socket.socket, seconds: float = 60.0) -> bytes | None:
    """Return what came until the server closed the connection, or None if the server did not close it."""
    made.settimeout(seconds)
    came = b""
    try:
        while data := made.recv(1 << 16):
            came += data
    except TimeoutError:
        return None
    except OSError:
        pass
    finally:
        made.close()
    return came
