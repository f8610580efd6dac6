"""A malicious device: it knows the passwords of other devices, and has their reports."""

import random
import threading
import time

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion

from undertone_aggregator.base.files import read_secret
from undertone_shared.topics import report_topic
from undertone_simulator.site import LocalHome
from undertone_simulator.wire.ledger import FleetLedger, read_ledgers

_SECONDS = 10.0
_PER_SECOND = 150
_LONGEST = 80


class Hostile:
    """Malicious device ``name``, which is not part of the fleet.

    Its own ledger records everything that it publishes.
    """

    def __init__(
        self, name: str, site: LocalHome, prefix: str, campaign: str, port: int, chance: random.Random
    ) -> None:
        self.name = name
        self._site = site
        self._prefix = prefix
        self._campaign = campaign
        self._port = port
        self._chance = chance
        self._ledger = FleetLedger(site.folder / "hostile.ledger")

    def flood(self, seconds: float) -> int:
        """Publish random data and other devices' reports, changed or unchanged, under the malicious device's own name.

        Return the number acknowledged.
        """
        sent: dict[int, bytes] = {}
        acked = []
        client = self._client(self.name)
        client.on_publish = lambda _client, _data, mid, *_: acked.append(mid)
        if not _connect(client, self._port):
            return 0
        seen = [report for _, report in read_ledgers([self._site.folder / "fleet.ledger"]).sent][-200:]
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            payload = self._payload(seen)
            self._ledger.sent(self.name, payload)
            self._ledger.flush()
            sent[client.publish(report_topic(self._prefix, self._campaign, self.name), payload, qos=1).mid] = payload
            time.sleep(1 / _PER_SECOND)
        deadline = time.monotonic() + _SECONDS
        while len(acked) < len(sent) and time.monotonic() < deadline:
            time.sleep(0.05)
        client.disconnect()
        client.loop_stop()
        arrived = {sent[mid] for mid in acked if mid in sent}
        for payload in dict.fromkeys(sent.values()):
            if payload in arrived:
                self._ledger.acked(self.name, payload)
            else:
                self._ledger.lost(self.name, payload, "flood_cut_short")
        self._ledger.flush()
        return len(acked)

    def steal(self, victim: str, seconds: float) -> bool:
        """Log in as ``victim`` with the victim's password, and as this device itself, but with the server's client id.

        Return True if the broker accepted the login as the victim.
        """
        thief, forger = self._client(victim), self._client(self.name, client_id="aggregator-0")
        entered = _connect(thief, self._port)
        _connect(forger, self._port)
        self._ledger.fault("session_stolen", victim)
        self._ledger.flush()
        time.sleep(seconds)
        for client in (thief, forger):
            client.disconnect()
            client.loop_stop()
        return entered

    def close(self) -> None:
        """Close the device's ledger."""
        self._ledger.close()

    def _client(self, user: str, client_id: str | None = None) -> mqtt.Client:
        client = mqtt.Client(CallbackAPIVersion.VERSION2, client_id or user, clean_session=True)
        password = read_secret(self._site.device(user) / "password")
        client.username_pw_set(user, password)
        # The thief must not reconnect by itself when the real device returns.
        client.reconnect_delay_set(3600, 3600)
        return client

    def _payload(self, seen: list[bytes]) -> bytes:
        kind = self._chance.random()
        if kind < 0.4 or not seen:
            return self._chance.randbytes(self._chance.randint(0, _LONGEST))
        report = bytearray(self._chance.choice(seen))
        if kind < 0.8:
            report[self._chance.randrange(len(report))] ^= 1 << self._chance.randrange(8)
        return bytes(report)


def _connect(client: mqtt.Client, port: int) -> bool:
    entered = threading.Event()
    client.on_connect = lambda _client, _data, _flags, reason, *_: None if reason.is_failure else entered.set()
    try:
        client.connect("127.0.0.1", port, 30)
    except OSError:
        return False
    client.loop_start()
    return entered.wait(_SECONDS)
