"""Benchmark of ingest, against three other subscribers, which receive the same backlog at QoS 1 in turn."""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion

from undertone_aggregator.base.files import write_private
from undertone_aggregator.base.interpreter import collect_rarely
from undertone_aggregator.campaign.collection import cells_of
from undertone_aggregator.counts.epochs import Epoch
from undertone_aggregator.counts.seen import COUNTED, Seen, device_key
from undertone_aggregator.ingest import fast_path
from undertone_aggregator.ingest.ingest import Ingest, IngestPlan
from undertone_aggregator.ingest.intake import Intake
from undertone_aggregator.mqtt import credentials
from undertone_aggregator.mqtt.link import Address
from undertone_aggregator.mqtt.sessions import open_intake
from undertone_aggregator.store.store import Store, open_store
from undertone_operate.examine.capacity import TRIAL, TRIAL_NOW, TRIAL_SLOT_SECONDS, trial_campaign
from undertone_shared import report
from undertone_shared.campaign import Campaign
from undertone_shared.errors import Invalid
from undertone_shared.topics import DEFAULT_PREFIX, report_topic
from undertone_simulator.mosquitto import Mosquitto
from undertone_studies.feed import publish
from undertone_studies.paho_intake import PahoIntake
from undertone_studies.registry import StudyOptions
from undertone_studies.row import Measured, duration, rate

TITLE = "Reports from a broker into a store"

CAMPAIGN, NOW, SLOT_SECONDS, make_campaign = TRIAL, TRIAL_NOW, TRIAL_SLOT_SECONDS, trial_campaign
PASSWORD = "bench"
_OLD, _PAHO, _SUB = "bench-old", "bench-paho", "bench-mosquitto-sub"
FILTER = f"{DEFAULT_PREFIX}/{CAMPAIGN}/+/+/report"
PLAN = IngestPlan(DEFAULT_PREFIX, CAMPAIGN, SLOT_SECONDS, cells_of)
_DEVICES = 3000


@dataclass(frozen=True)
class Drain:
    """Time that one subscriber took for a backlog: seconds of wall time and of its own processor time."""

    wall: float
    processor: float


def run(options: StudyOptions) -> list[Measured]:
    """Measure reports per second, processor time per report, and memory for deduplication.

    Raises Invalid without mosquitto.
    """
    reports, rounds = (6_000, 1) if options.quick else (60_000, 3)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with (
            broker_in(folder) as broker,
            open_store(folder / "ours.sqlite") as ours,
            open_store(folder / "old.sqlite") as old,
        ):
            address = Address(broker.host, broker.port, credentials.AGGREGATOR, PASSWORD)
            campaign = make_campaign()
            for store in (ours, old):
                store.add_epoch(Epoch(campaign, NOW))
            soak = _Scene(address, campaign, ours, old, reports)
            best = soak.best(range(rounds), _honest)
            hostile = soak.best(range(rounds, rounds + 1), _hostile)
    what = "commit, then acknowledge, QoS 1"
    return [
        *_beside(what, best, "mosquitto_sub", "sub", 0.8),
        *_beside(what, best, "paho, one by one", "old", 2.5),
        *_beside(what, best, "bare paho, manual acknowledgement", "paho", None),
        duration(what, best["ours"].processor, "CPU µs/report", "goal", 22.0, goal=1.0),
        *_beside(
            "a quarter of reports refused, the others from new devices",
            hostile,
            "paho, one by one",
            "old",
            1.0,
        ),
        _memory(20_000 if options.quick else 200_000),
    ]


def _beside(what: str, best: dict[str, Drain], baseline: str, name: str, goal: float | None) -> list[Measured]:
    ours, other = best["ours"], best[name]
    return [
        rate(what, 1 / ours.wall, "reports/s", baseline, 1 / other.wall, goal),
        duration(what, ours.processor, "CPU µs/report", baseline, other.processor),
    ]


class _Scene:
    """Four subscribers with a session each, which drain the same backlog in turn."""

    def __init__(self, address: Address, campaign: Campaign, ours: Store, old: Store, reports: int) -> None:
        self._address = address
        self._campaign = campaign
        self._reports = reports
        self._drains: dict[str, Callable[[], Drain]] = {
            "ours": lambda: _ingest(ours, open_intake([address], PLAN, lambda _: None), reports, fast_path.LEAST),
            "old": lambda: _ingest(old, PahoIntake(address, _OLD, FILTER, 2000), reports, sys.maxsize),
            "paho": lambda: _paho(address, reports),
            "sub": lambda: _mosquitto_sub(address, reports),
        }
        for client_id in (PLAN.client_id, _OLD, _PAHO, _SUB):
            _begin_session(address, client_id)
        self._stores = ours, old

    def best(self, rounds: range, make_report: Callable[[Campaign, int], tuple[str, bytes]]) -> dict[str, Drain]:
        """Return each subscriber's shortest drain: seconds of wall time and µs of processor time per report."""
        drains: dict[str, list[Drain]] = {name: [] for name in self._drains}
        for number in rounds:
            publish(
                self._address, (make_report(self._campaign, number * self._reports + i) for i in range(self._reports))
            )
            # In each round another subscriber goes first, because the first one meets the broker's largest queues.
            order = list(self._drains)
            for name in order[number % 4 :] + order[: number % 4]:
                drains[name].append(self._drains[name]())
            # A broker may deliver a report twice, so the subscribers agree only on the number of counted reports.
            ours, old = (store.outcomes()[COUNTED] for store in self._stores)
            if ours != old:
                raise RuntimeError(f"the subscribers counted {ours} and {old} reports, expected the same")
        return {
            name: Drain(
                min(drain.wall for drain in some) / self._reports,
                min(drain.processor for drain in some) / self._reports * 1e6,
            )
            for name, some in drains.items()
        }


def _memory(devices: int) -> Measured:
    seen = Seen()
    for number in range(devices):
        seen.judge(device_key(f"meter-{number:06d}")[1], NOW // SLOT_SECONDS, 1)
    megabytes = len(seen.snapshot()) / devices
    return duration("deduplication state", megabytes, "MB per million devices", "goal", 32.0, goal=1.0)


def broker_in(folder: Path) -> Mosquitto:
    passwords, access = folder / "passwords", folder / "access"
    credentials.write_passwords(passwords, {credentials.AGGREGATOR: PASSWORD})
    write_private(access, f"user {credentials.AGGREGATOR}\ntopic readwrite #\n")
    # Saving the queues to disk during a drain would slow one subscriber and not the others.
    return Mosquitto(folder / "broker", passwords=passwords, access=access, autosave_seconds=86400, own_client_ids=True)


def _honest(campaign: Campaign, number: int) -> tuple[str, bytes]:
    """Make report ``number`` of a fleet whose devices report in turn, slot by slot."""
    return report_of(campaign, f"meter-{number % _DEVICES:04d}", number // _DEVICES, number)


def _hostile(campaign: Campaign, number: int) -> tuple[str, bytes]:
    """Make a report of a new device each time; every fourth one is damaged."""
    topic, payload = report_of(campaign, f"new-{number:08d}", 0, number)
    return topic, payload if number % 4 else payload[:-1]


def report_of(campaign: Campaign, device: str, slot: int, number: int) -> tuple[str, bytes]:
    assert campaign.cohort is not None
    symbol = number * 31 % campaign.cohort.mechanism.symbols
    payload = report.pack(report.COHORT, campaign.fingerprint, campaign.first_slot + slot, (symbol,), 1 + slot)
    return report_topic(DEFAULT_PREFIX, CAMPAIGN, device), payload


def _begin_session(address: Address, client_id: str) -> None:
    client = mqtt.Client(CallbackAPIVersion.VERSION2, client_id=client_id, clean_session=False)
    client.username_pw_set(address.user, address.password)
    client.on_connect = lambda client, *_: client.subscribe(FILTER, 1)
    client.on_subscribe = lambda client, *_: client.disconnect()
    client.connect(address.host, address.port)
    client.loop_forever()


def _ingest(store: Store, intake: Intake, reports: int, least: int) -> Drain:
    """Receive the backlog with a server's worker; ``least``: smallest batch for which the worker uses the fast path."""
    usual, fast_path.LEAST = fast_path.LEAST, least
    collect_rarely()
    try:
        ingest = Ingest(PLAN, store, intake, clock=lambda: NOW)
        start, processor, taken = time.perf_counter(), time.thread_time(), 0
        while taken < reports:
            taken += ingest.step()
        ended = Drain(time.perf_counter() - start, time.thread_time() - processor)
        # On a busy machine the publisher's connection may break, and it sends some messages again; receive these, too.
        while ingest.step():
            pass
    finally:
        fast_path.LEAST = usual
    intake.close()
    return ended


def _paho(address: Address, reports: int) -> Drain:
    client = address.client(_PAHO, clean_session=False, manual_ack=True)
    taken = 0

    def on_message(client: mqtt.Client, _data: object, message: mqtt.MQTTMessage) -> None:
        nonlocal taken
        taken += 1
        client.ack(message.mid, message.qos)
        if taken == reports:
            client.disconnect()

    client.on_message = on_message
    start, processor = time.perf_counter(), time.thread_time()
    client.connect(address.host, address.port)
    client.loop_forever()
    return Drain(time.perf_counter() - start, time.thread_time() - processor)


def _mosquitto_sub(address: Address, reports: int) -> Drain:
    program = shutil.which("mosquitto_sub")
    if program is None:
        raise Invalid("mosquitto_sub is not installed: apt install mosquitto-clients, or brew install mosquitto")
    command = [program, "-h", address.host, "-p", str(address.port), "-u", address.user, "-P", address.password]
    command += ["-i", _SUB, "-c", "-q", "1", "-t", FILTER, "-C", str(reports), "-F", "%l"]
    start = time.perf_counter()
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, _, usage = os.wait4(child.pid, 0)
    child.returncode = 0
    return Drain(time.perf_counter() - start, usage.ru_utime + usage.ru_stime)
