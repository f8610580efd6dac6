"""The fleet over the wire, with a real broker and server. Slots last 60 seconds, and an injected clock runs faster."""

import asyncio
import os
import signal
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from support.lies import campaign, reporting
from support.refusal import refused
from support.stepped import PatientClock, SteppedClock
from undertone_aggregator.design import hybrid
from undertone_shared.off_board.intake import unpack
from undertone_shared.off_board.issue import pack
from undertone_shared.report import COHORT, REPORT
from undertone_simulator.wire.faults import Fault, schedule
from undertone_simulator.wire.ledger import read_ledgers
from undertone_simulator.wire.memory import MemoryStorage

pytestmark = pytest.mark.waits
MINUTES = """
slot_seconds = 60
cycle = 4
epsilon = 2
rounds = [3]
report_slots = 12
epoch_slots = 12
lead_slots = 1
settle_slots = 1
cohort_share = 0.2
"""
SPEED = 120.0


def outcome(world):
    return read_ledgers([world.ledger_path])


def run_fleet(world, slots, faults=(), **options):
    fleet = world.fleet(**options)

    async def go():
        await asyncio.wait_for(fleet.run(slots, on_slot=schedule(fleet, faults)), 250)

    asyncio.run(go())
    fleet.wire.ledger.close()
    assert fleet.skipped == 0
    return fleet


both_ways = pytest.mark.parametrize("direct", [False, True], ids=["broker", "direct"])


@pytest.mark.slow_but("direct")
@both_ways
def test_minutes_by_an_injected_clock_lose_nothing(make_world, direct):
    world = make_world(6, MINUTES, PatientClock(SPEED), direct)
    world.start_aggregator()
    faults = [
        Fault(1, "kill-drawn", "load-001"),
        Fault(1, "kill-torn", "load-002"),
        Fault(1, "kill-sent", "load-003"),
        Fault(2, "duplicate", "load-004"),
        Fault(2, "hold", "load-005"),
        Fault(3, "disconnect", "load-006"),
        Fault(4, "kill", "load-001"),
    ]
    fleet = run_fleet(world, 8, faults)
    accounts = world.accounts()
    assert accounts.holds, accounts.examples
    assert accounts.sent == accounts.counted
    assert not accounts.rejected
    assert not accounts.lost
    assert accounts.duplicates >= 1
    assert accounts.faults == {"killed": 4, "duplicated": 1, "held": 1, "disconnected": 1}
    assert all(device.connections >= 2 for device in fleet.devices if device.name in ("load-002", "load-006"))
    sent = outcome(world)
    kinds = Counter(unpack(report).kind for _, report in sent.sent)
    assert kinds[COHORT] > 20
    assert kinds[REPORT] > 20
    assert [play.stride for play in sent.plays] == [4, 1]


@pytest.mark.slow_but("direct")
@both_ways
def test_a_fleet_that_ends_is_gone_on_with_from_its_storage(make_world, direct, tmp_path):
    world = make_world(4, MINUTES.replace("report_slots = 12", "report_slots = 20"), PatientClock(SPEED), direct)
    world.start_aggregator()
    first = run_fleet(world, 2, state=tmp_path / "state")
    assert first.report_slot is not None
    second = run_fleet(world, 8, state=tmp_path / "state")
    assert second.report_slot == first.report_slot
    accounts = world.accounts()
    assert accounts.holds, accounts.examples
    assert accounts.sent == accounts.counted
    slots = [unpack(report).slot for device, report in outcome(world).sent if device == "load-001"]
    assert len(slots) == len(set(slots))


@pytest.mark.slow_but("direct")
@both_ways
def test_an_aggregator_that_stops_and_comes_back_counts_everything_once(make_world, direct):
    world = make_world(5, MINUTES, PatientClock(SPEED), direct)
    world.start_aggregator()
    fleet = world.fleet()
    stopping = []

    async def go():
        def on_slot(slot):
            if fleet.report_slot is None:
                return
            if slot == fleet.report_slot + 2:
                stopping.append(executor.submit(world.stop_aggregator))
            if slot == fleet.report_slot + 5:
                # The fleet, and with it the clock, waits here until the server has stopped.
                stopping[0].result()
                world.start_aggregator()

        await asyncio.wait_for(fleet.run(8, on_slot=on_slot), 250)

    with ThreadPoolExecutor() as executor:
        asyncio.run(go())
    fleet.wire.ledger.close()
    accounts = world.accounts()
    assert accounts.holds, accounts.examples
    assert fleet.skipped == 0
    assert accounts.sent == accounts.counted >= 5 * 6


def test_a_fleet_that_is_stopped_draws_nothing_more(make_world):
    world = make_world(12, MINUTES, PatientClock(SPEED))
    world.start_aggregator()
    fleet = world.fleet()

    async def go():
        stop = asyncio.Event()
        running = asyncio.get_running_loop().create_task(fleet.run(1000, stop))
        # Wait until some devices have drawn in this slot and others have not, and all reports are acknowledged.
        while len({device.drawn for device in fleet.devices}) == 1 or any(
            device.unacknowledged for device in fleet.devices
        ):
            await asyncio.sleep(0.001)
        stop.set()
        # Block the event loop until the next draws are due. Then they are due before the fleet's task sees the stop.
        time.sleep(0.5 * 60 / SPEED)
        drawn = [device.drawn for device in fleet.devices]
        await running
        assert [device.drawn for device in fleet.devices] == drawn

    asyncio.run(asyncio.wait_for(go(), 250))
    fleet.wire.ledger.close()
    accounts = world.accounts()
    assert accounts.holds, accounts.examples
    assert not accounts.lost
    assert accounts.sent == accounts.counted


def test_report_slots_of_a_running_campaign_begin_once_the_last_device_has_accepted_it(make_world):
    clock = SteppedClock(int(time.time()) // 60 * 60)
    world = make_world(3, MINUTES, clock, direct=True)
    fleet = world.fleet()
    slot = int(clock.moment) // 60
    running = campaign((slot - 10) * 60, slot + 1000, **reporting(hybrid(2)))
    message = pack(running, int(clock.moment))
    # In the first three calls, each of the three devices accepts the campaign for the first time. In the fourth, one of
    # them accepts it again, as after a restart.
    for seconds, first in ((0, slot + 1), (30, slot + 1), (61, slot + 2), (500, slot + 2)):
        clock.moment = slot * 60 + seconds
        fleet.wire.on_campaign(message)
        assert fleet.report_slot == first


def test_what_a_frozen_and_killed_broker_swallows_is_lost_by_name(make_world):
    world = make_world(3, MINUTES, PatientClock(SPEED))
    world.start_aggregator()
    fleet = world.fleet(capacity=2)

    def on_slot(slot):
        since = slot - (fleet.report_slot or slot + 1)
        if since == 1:
            os.kill(world.broker.pid, signal.SIGSTOP)
        elif since == 5:
            fleet.wire.ledger.fault("broker_killed")
            world.broker.kill()
            world.broker.start()

    async def go():
        await asyncio.wait_for(fleet.run(10, on_slot=on_slot), 250)

    asyncio.run(go())
    fleet.wire.ledger.close()
    accounts = world.accounts()
    assert accounts.holds, accounts.examples
    # Each device sent four reports into the stopped broker, and its outbox kept two.
    assert accounts.lost["outbox_full"] >= 3
    assert set(accounts.lost) <= {"outbox_full", "broker_killed"}
    assert accounts.sent == accounts.counted + accounts.lost.total()


def test_an_unknown_fault_is_refused():
    with refused("fault", "'flood'"):
        Fault(1, "flood", "load-001")


class Recorded(dict):
    """Stands for a fleet of one device in a schedule of faults, and records what the schedule does to the device."""

    def __init__(self, report_slot):
        self.report_slot = report_slot
        self.done = []
        names = ("kill", "restart", "hold_back", "release")
        acts = {name: lambda name=name: self.done.append(name) for name in names}
        super().__init__(a=SimpleNamespace(reporter=None, die_at=None, **acts))


def test_a_fault_of_a_slot_that_the_machine_skipped_happens_in_the_next():
    fleet = Recorded(None)
    on_slot = schedule(fleet, [Fault(1, "kill", "a"), Fault(3, "hold", "a")])
    on_slot(97)
    fleet.report_slot = 100
    # The faults are due in slots 101 and 103, which are skipped, so both begin in slot 104. They would end in slot 106,
    # which is skipped, too, so they end in slot 107.
    expected = {98: [], 100: [], 104: ["kill", "hold_back"], 105: [], 107: ["restart", "release"], 108: []}
    for slot, done in expected.items():
        on_slot(slot)
        assert fleet.done == done, slot
        fleet.done.clear()
    # A fleet that comes later misses the earlier faults.
    late = Recorded(100)
    on_slot = schedule(late, [Fault(1, "kill", "a"), Fault(3, "hold", "a")])
    on_slot(102)
    on_slot(103)
    assert late.done == ["hold_back"]


def test_a_patient_clock_stops_at_the_moment_that_is_waited_for(monkeypatch):
    machine = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: machine[0])
    clock = PatientClock(10.0)
    began = clock.now()
    machine[0] += 1
    assert clock.now() == pytest.approx(began + 10)
    asyncio.run(clock.until(began + 10))
    machine[0] += 60
    assert clock.now() == pytest.approx(began + 10), "a minute in which the machine stood still does not count"


def test_memory_storage_keeps_what_it_was_given():
    storage = MemoryStorage()
    data = bytearray(b"abc")
    storage.write("a", memoryview(data))
    data[0] = 0
    assert storage.read("a") == b"abc"
    storage.delete("a")
    storage.delete("a")
    assert storage.read("a") is None
