"""A fleet's reports for the server's tests, sent over one connection with all rights, and a broker that allows this."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion

from support.paho_client import leave
from support.ports import free_port
from support.private_broker import TLS
from support.waiting import wait_for
from undertone_aggregator.mqtt import credentials
from undertone_aggregator.mqtt.link import Address
from undertone_simulator.mosquitto import Mosquitto

PASSWORD = "a password for a test"


class TlsBroker(Mosquitto):
    """A broker with TLS, like one that somebody already runs."""

    def _configuration(self, *options: Any) -> str:
        return super()._configuration(*options) + f"certfile {TLS}/localhost.pem\nkeyfile {TLS}/localhost.key\n"


def open_broker(folder: Path, *, tls: bool = False, **options: int) -> Mosquitto:
    """A broker that is not started yet. Its users ``aggregator`` and ``fleet`` may do everything."""
    folder.mkdir(exist_ok=True)
    passwords, access = folder / "passwords", folder / "access"
    users = credentials.server_users(PASSWORD)
    credentials.write_passwords(passwords, {**users, "fleet": PASSWORD})
    access.write_text("".join(f"user {user}\ntopic readwrite #\n" for user in (*users, "fleet")), encoding="utf-8")
    access.chmod(0o600)
    kind = TlsBroker if tls else Mosquitto
    # The broker may be stopped and started again. Meanwhile, no other program must get its port.
    return kind(folder / "broker", free_port(), passwords=passwords, access=access, **options)


def address(broker: Mosquitto) -> Address:
    """The address and the user with which the server reaches the broker."""
    return Address(broker.host, broker.port, "aggregator", PASSWORD, worker_users=True)


class Place(Protocol):
    """The host and port of a broker."""

    @property
    def host(self) -> str: ...

    @property
    def port(self) -> int: ...


class Sender:
    """Publishes at QoS 1 until messages are acknowledged, over any number of connections. It keeps all messages."""

    def __init__(self, broker: Place) -> None:
        self.sent: list[tuple[str, bytes]] = []
        self._acknowledged: set[int] = set()
        self._client = mqtt.Client(CallbackAPIVersion.VERSION2, client_id="fleet", clean_session=False)
        self._client.username_pw_set("fleet", PASSWORD)
        self._client.max_inflight_messages_set(500)
        self._client.reconnect_delay_set(1, 1)
        acknowledged = self._acknowledged
        self._client.on_publish = lambda client, data, mid, reason, properties: acknowledged.add(mid)
        if isinstance(broker, TlsBroker):
            self._client.tls_set(str(TLS / "ca.pem"))
        # The certificate is for this name.
        self._client.connect("localhost" if isinstance(broker, TlsBroker) else broker.host, broker.port)
        self._client.loop_start()

    def send(self, deliveries: Iterable[tuple[str, bytes]], *, retain: bool = False) -> list[int]:
        """Hand over reports, with or without a connection.

        Return their message identifiers, of which fewer than 65,535 may be in use.
        """
        made = []
        for topic, payload in deliveries:
            made.append(self._client.publish(topic, payload, qos=1, retain=retain).mid)
            self.sent.append((topic, payload))
        return made

    def flush(self, made: Iterable[int], seconds: float = 120.0) -> None:
        """Wait until the broker has acknowledged these messages."""
        wanted = set(made)
        wait_for(lambda: wanted <= self._acknowledged, seconds, "the broker's acknowledgement")

    def close(self) -> None:
        leave(self._client)
