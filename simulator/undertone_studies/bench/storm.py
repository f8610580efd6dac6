"""Benchmark: a server comes back after an hour in which devices could not reach it, and all devices return to it.

The server is set up by the commands that an operator types, with TLS and passwords, and is killed. The devices are the
simulator's: real MQTT connections over loopback, with the shipped reporter, and the rule by which devices come back
(`undertone_device.mqtt.knocks`) at its real pace. Slots are short here: the two slots of the absence stand for an hour
of half-hours. A device counts as back when the server has acknowledged its first report after the return; that report
is then in the store. As many devices take part as this machine's limit of open files allows, at most 19,000. They
report in threshold rounds, whose reports take the same way as all others.
"""

import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from undertone_aggregator.base.open_files import RESERVE, raise_limit
from undertone_aggregator.server.folder import Home
from undertone_aggregator.store.store import SETTLED, Store, open_store
from undertone_device.mqtt.knocks import PERIOD
from undertone_shared.off_board.intake import unpack
from undertone_simulator.mosquitto import free_port
from undertone_simulator.processes import Processes
from undertone_simulator.readings.populations import population
from undertone_simulator.wire.fleet_process import FleetJob
from undertone_simulator.wire.ledger import LedgerTail, Sent, read_ledgers
from undertone_simulator.wire.verify import Accounts, reconcile
from undertone_studies.own_server import running, undertone
from undertone_studies.processor import check_proc, processor_seconds, resident
from undertone_studies.registry import StudyOptions
from undertone_studies.row import Measured, duration

TITLE = "All devices come back to a server that was away for two slots"

CAMPAIGN = "load"
MOST = 19_000
# Slots for which the server is away, and seconds after its return within which all devices must be back.
AWAY_SLOTS = 2
ALLOWED_SECONDS = 90.0
# A slot settles this many slots after its end. A server that starts again waits for as long before it settles anything;
# in a campaign of half-hours it waits for ten minutes.
_SETTLE_SLOTS = 4
_CONNECTS_PER_SECOND = 250
_PATIENCE_SECONDS = 900.0


@dataclass(frozen=True)
class Storm:
    """Number of devices, milliseconds between two knocks (tries to connect) of one device, and seconds of a slot."""

    devices: int
    period: int
    slot_seconds: int


@dataclass(frozen=True)
class Return:
    """The measurements of a return.

    ``starting``: seconds until the server listened. ``waits``: for each device, seconds from then until its
    first report was acknowledged. ``stored``: reports that devices had drawn before the return and not yet delivered.
    ``counted``: how many of these were counted in settled slots at the end. ``after_settling``: reports that came too
    late for their slot's published number. ``processor``: seconds of the server's processor time from its return until
    all devices were back. ``memory``: growth of its resident memory in that time, in KB.
    """

    starting: float
    waits: np.ndarray
    stored: int
    counted: int
    after_settling: int
    processor: float
    memory: float
    accounts: Accounts


def run(options: StudyOptions) -> list[Measured]:
    """Measure the return of all devices. Raises Failed, Invalid, RuntimeError or OSError."""
    check_proc()
    devices = min(MOST, raise_limit() - 2 * RESERVE)
    storm = Storm(60, 2000, 2) if options.quick else Storm(devices, PERIOD, 30)
    result = come_back(storm)
    what = f"{storm.devices:,} devices, {storm.period / 1000:g} s between knocks"
    half, most = np.quantile(result.waits, [0.5, 0.9]).tolist()
    busiest = max(Counter(int(wait) for wait in result.waits).values())
    lost = sum(n for why, n in result.accounts.unexplained.items() if why.startswith("acknowledged"))
    return [
        Measured(what, result.starting, "s until the server listens"),
        Measured(what, half, "s until 50 % are in"),
        Measured(what, most, "s until 90 % are in"),
        duration(what, float(max(result.waits)), "s until all are in", "allowed", ALLOWED_SECONDS, 1.0),
        Measured(what, busiest, "devices in the busiest second"),
        Measured(what, 1000 * result.processor / storm.devices, "ms of the server's processor time a device"),
        Measured(what, result.memory / storm.devices, "KB of the server's memory a device"),
        Measured(what, result.stored, "reports that devices had stored"),
        Measured(what, result.counted, "stored reports in settled numbers"),
        Measured(what, result.after_settling, "reports after their slot had settled"),
        Measured(what, result.accounts.rejected.total(), "reports refused"),
        Measured(what, lost, "acknowledged reports lost"),
        Measured(what, result.accounts.unexplained.total(), "reports of unknown fate"),
    ]


def come_back(storm: Storm) -> Return:
    """Let the devices report, kill the server, start it again later, and wait until all reports are settled."""
    with tempfile.TemporaryDirectory(prefix="undertone-storm-") as name:
        folder = Path(name)
        home, port = folder / "home", free_port()
        _make_home(home, port, storm)
        config = Home(home).config(CAMPAIGN)
        serve = [sys.executable, "-m", "undertone", "serve", str(home)]
        tail = LedgerTail(folder / "fleet.ledger")
        with Processes(folder) as processes:
            with running(serve, port) as server:
                _start_devices(processes, folder, home, storm)
                processes.wait_until_connected(storm.devices, _PATIENCE_SECONDS)
                _until(lambda: len({device for device, _ in tail.poll().acked}) == storm.devices, processes)
                server.send_signal(signal.SIGKILL)
                server.wait()
            time.sleep(AWAY_SLOTS * storm.slot_seconds)
            before = set(tail.poll().acked)
            began = time.time()
            with running(serve, port) as server:
                returned, used, memory = time.time(), processor_seconds([server.pid]), resident(server.pid)
                first = int(returned) // storm.slot_seconds
                _until(lambda: len(_first_acks(tail.poll(), returned)) == storm.devices, processes)
                used, memory = processor_seconds([server.pid]) - used, resident(server.pid) - memory
                with open_store(config.store_url, read_only=True) as store:
                    _until(lambda: _settled(store) >= first - 1, processes)
                    _stop(processes)
                    accounts = _accounts(folder, store)
                    stored = {key for key in tail.poll().sent if key not in before and unpack(key[1]).slot < first}
                    slots = range(min(unpack(report).slot for _, report in stored), first)
                    counted = store.partial(slots[0], slots[-1], late=False).reports - sum(
                        slots[0] <= unpack(report).slot for _, report in before
                    )
                    late = store.late_reports()
        waits = np.array(list(_first_acks(tail.poll(), returned).values()))
        return Return(returned - began, waits, len(stored), counted, late, used, memory, accounts)


def _make_home(home: Path, port: int, storm: Storm) -> None:
    where = ("--host", "localhost", "--tls", "--port", str(port), "--websocket-port", "0")
    undertone("init", str(home), *where, "--health", f"127.0.0.1:{free_port()}", "--audit")
    plan = ("--sensor", "load", "--unit", "Wh", "--bound", "10000", "--epsilon", "1")
    # One threshold round covers all slots of this trial.
    slots = ("cycle=4", "rounds=[4000]", f"settle_slots={_SETTLE_SLOTS}")
    options = [word for option in slots for word in ("--set", option)]
    undertone("campaign", "create", str(home), CAMPAIGN, *plan, "--slot-seconds", str(storm.slot_seconds), *options)
    undertone("devices", "add", str(storm.devices), "--home", str(home))


def _start_devices(processes: Processes, folder: Path, home: Path, storm: Storm) -> None:
    readings = population("households", 1).readings(storm.devices, 1)
    readings.save(folder / "readings.npz")
    processes.start_fleet(
        FleetJob(
            str(home / "fleets" / CAMPAIGN),
            storm.devices,
            str(folder / "readings.npz"),
            str(folder / "fleet.ledger"),
            slots=1 << 20,
            stride=0,
            ramp_up=storm.devices / _CONNECTS_PER_SECOND,
            period=storm.period,
            durable=False,
        )
    )


def _stop(processes: Processes) -> None:
    """End the fleet, which then records the reports that it has not delivered."""
    assert processes.fleet is not None
    processes.fleet.send_signal(signal.SIGTERM)
    processes.fleet.wait(_PATIENCE_SECONDS)


def _first_acks(sent: Sent, returned: float) -> dict[str, float]:
    """Return for each device the seconds from the return until its first report was acknowledged."""
    waits: dict[str, float] = {}
    for (device, _), moment in sent.acked.items():
        wait = moment / 1000 - returned
        if wait > 0:
            waits[device] = min(wait, waits.get(device, wait))
    return waits


def _settled(store: Store) -> int:
    return int(store.meta(SETTLED).get(SETTLED, -1))


def _accounts(folder: Path, store: Store) -> Accounts:
    """Return the accounts as soon as they explain every report, or else after `_PATIENCE_SECONDS`."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        accounts = reconcile(read_ledgers([folder / "fleet.ledger"]), store)
        if accounts.holds or time.monotonic() > deadline:
            return accounts
        time.sleep(1)


def _until(done: Callable[[], bool], processes: Processes) -> None:
    """Wait until ``done`` returns True. Raises Failed if the fleet ends, RuntimeError if it takes too long."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not done():
        processes.check()
        if time.monotonic() > deadline:
            raise RuntimeError(
                f"a step did not end within {_PATIENCE_SECONDS:g} s; the fleet's log ends with:"
                f" {processes.words('fleet.log')[-300:]}"
            )
        time.sleep(0.5)
