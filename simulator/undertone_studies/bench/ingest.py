"""Ingest beside the least that any subscriber must do: the same backlog at QoS 1, drained by each in turn."""

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion

from undertone_aggregator import credentials
from undertone_aggregator.broker import ManagedBroker
from undertone_aggregator.collect.epochs import Epoch
from undertone_aggregator.collect.ingest import Ingest, IngestPlan
from undertone_aggregator.collect.link import Address
from undertone_aggregator.collect.seen import Seen, device_key
from undertone_aggregator.collect.sessions import open_intake
from undertone_aggregator.collect.store import Store, open_store
from undertone_aggregator.collection import cells_of
from undertone_aggregator.design import square_wave
from undertone_aggregator.threshold import first_edges
from undertone_shared import report
from undertone_shared.campaign import Campaign
from undertone_shared.errors import Invalid
from undertone_shared.issue import build
from undertone_shared.scalar import Cohort
from undertone_shared.topics import DEFAULT_PREFIX, report_topic
from undertone_studies.registry import Options
from undertone_studies.row import Row, duration, rate

TITLE = "Reports from a broker into a store"

CAMPAIGN = "bench"
NOW = 1_800_000_000
SLOT_SECONDS = 60
PASSWORD = "bench"
_PAHO, _SUB = "bench-paho", "bench-mosquitto-sub"
FILTER = f"{DEFAULT_PREFIX}/{CAMPAIGN}/+/+/report"
PLAN = IngestPlan(DEFAULT_PREFIX, CAMPAIGN, SLOT_SECONDS, cells_of)
_DEVICES = 3000
_LATE_SECONDS = 30.0


@dataclass(frozen=True)
class Drain:
    """What one subscriber took for a backlog: seconds of wall and of its own processor time."""

    wall: float
    processor: float


def run(options: Options) -> list[Row]:
    """Reports a second, processor time a report, and deduplication memory. Raises Invalid without mosquitto."""
    reports, rounds = (6_000, 1) if options.quick else (60_000, 3)
    of_reader: dict[str, list[Drain]] = {"ours": [], "paho": [], "sub": []}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with _broker(folder) as broker, open_store(folder / "s.sqlite") as store:
            address = Address(broker.host, broker.port, credentials.AGGREGATOR, PASSWORD)
            campaign = make_campaign()
            store.add_epoch(Epoch(campaign, NOW))
            drains: dict[str, Callable[[], Drain]] = {
                "ours": lambda: _ours(address, store, reports, (number + 1) * reports),
                "paho": lambda: _paho(address, reports),
                "sub": lambda: _mosquitto_sub(address, reports),
            }
            for client_id in (PLAN.client_id, _PAHO, _SUB):
                _begin_session(address, client_id)
            for number in range(rounds):
                _publish(address, campaign, number * reports, reports)
                # Each goes first once: the first meets the broker's largest queues.
                order = list(drains)
                for kind in order[number % 3 :] + order[: number % 3]:
                    of_reader[kind].append(drains[kind]())
            if store.outcomes()["counted"] != rounds * reports:
                raise RuntimeError(f"counted {store.outcomes()}, expected {rounds * reports} reports")
    wall = {kind: reports / min(drain.wall for drain in drains) for kind, drains in of_reader.items()}
    processor = {kind: min(drain.processor for drain in drains) / reports * 1e6 for kind, drains in of_reader.items()}
    what = "commit, then acknowledge, QoS 1"
    return [
        rate(what, wall["ours"], "reports/s", "bare paho, manual acknowledgement", wall["paho"]),
        rate(what, wall["ours"], "reports/s", "mosquitto_sub", wall["sub"], goal=0.8),
        duration(what, processor["ours"], "CPU µs/report", "bare paho, manual acknowledgement", processor["paho"]),
        duration(what, processor["ours"], "CPU µs/report", "mosquitto_sub", processor["sub"]),
        duration(what, processor["ours"], "CPU µs/report", "goal", 22.0, goal=1.0),
        _memory(20_000 if options.quick else 200_000),
    ]


def _memory(devices: int) -> Row:
    seen = Seen()
    for number in range(devices):
        seen.judge(device_key(f"meter-{number:06d}")[1], NOW // SLOT_SECONDS, 1)
    megabytes = len(seen.snapshot()) / devices
    return duration("deduplication state", megabytes, "MB per million devices", "goal", 32.0, goal=1.0)


def _broker(folder: Path) -> ManagedBroker:
    passwords, access = folder / "passwords", folder / "access"
    credentials.write_passwords(passwords, {credentials.AGGREGATOR: PASSWORD})
    credentials.write_private(access, f"user {credentials.AGGREGATOR}\ntopic readwrite #\n")
    # Saving the queues to disk in the middle would hit one subscriber and not the others.
    return ManagedBroker(
        folder / "broker", passwords=passwords, access=access, autosave_seconds=86400, own_client_ids=True
    )


def make_campaign() -> Campaign:
    first = NOW // SLOT_SECONDS - 80
    return build(
        name=CAMPAIGN,
        sensor="load",
        unit="Wh",
        measure="sum",
        offset=0,
        bound=10_000,
        slot_seconds=SLOT_SECONDS,
        cycle=1440,
        epoch=first * SLOT_SECONDS,
        last_slot=first + 1440,
        default=0,
        cohort=Cohort(square_wave(1, first_edges(10_000, 128))),
        report=None,
    )


def _publish(address: Address, campaign: Campaign, first: int, reports: int) -> None:
    """Distinct reports number first, first + 1, … of a fleet, acknowledged by the broker when this returns."""
    client = address.client("bench-publisher")
    client.max_inflight_messages_set(2000)
    client.connect(address.host, address.port)
    client.loop_start()
    topics = [report_topic(DEFAULT_PREFIX, CAMPAIGN, f"meter-{number:04d}") for number in range(_DEVICES)]
    assert campaign.cohort is not None
    symbols = campaign.cohort.mechanism.symbols
    info = None
    for number in range(first, first + reports):
        slot = campaign.first_slot + number // _DEVICES
        payload = report.pack(
            report.COHORT, campaign.fingerprint, slot, (number * 31 % symbols,), 1 + number // _DEVICES
        )
        info = client.publish(topics[number % _DEVICES], payload, qos=1)
    if info is not None:
        info.wait_for_publish()
    client.disconnect()
    client.loop_stop()


def _begin_session(address: Address, client_id: str) -> None:
    client = mqtt.Client(CallbackAPIVersion.VERSION2, client_id=client_id, clean_session=False)
    client.username_pw_set(address.user, address.password)
    client.on_connect = lambda client, *_: client.subscribe(FILTER, 1)
    client.on_subscribe = lambda client, *_: client.disconnect()
    client.connect(address.host, address.port)
    client.loop_forever()


def _ours(address: Address, store: Store, reports: int, distinct: int) -> Drain:
    intake = open_intake(address, PLAN, lambda _: None)
    ingest = Ingest(PLAN, store, intake, clock=lambda: NOW)
    start, processor, taken = time.perf_counter(), time.thread_time(), 0
    while taken < reports:
        taken += ingest.step()
    ended = Drain(time.perf_counter() - start, time.thread_time() - processor)
    # On a busy machine the publisher's connection may break, and it sends some again: as many others still wait.
    late = time.perf_counter() + _LATE_SECONDS
    while store.outcomes()["counted"] < distinct and time.perf_counter() < late:
        ingest.step()
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
