"""Runs a demonstration from its first process to its last, for every way of collecting."""

import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from undertone_aggregator.base.plural import many
from undertone_aggregator.campaign.binding import PAUSED, RUNNING, STATE, open_campaign
from undertone_aggregator.store.store import open_store
from undertone_shared.errors import Invalid
from undertone_simulator.demo.plan import DemoCollection, DemoOptions, DemoResult, PreparedDemo, prepare
from undertone_simulator.demo.reports import Reports
from undertone_simulator.demo.stream import DemoStream
from undertone_simulator.mosquitto import HOST, find_mosquitto, free_port
from undertone_simulator.processes import (
    CONNECT_SECONDS,
    NO_MICROPYTHON,
    Failed,
    Processes,
    check_alive,
    end,
    find_micropython,
)
from undertone_simulator.wire.fleet_process import FleetJob
from undertone_simulator.wire.ledger import REPORT, FleetLedger, LedgerTail, read_ledgers

DEMO_COLLECTIONS: dict[str, DemoCollection] = {"reports": Reports(), "stream": DemoStream()}
# Seconds that a run may take longer than planned before it counts as failed. Without this limit a run would never end
# if the server cannot choose θ.
SLACK_SECONDS = 60.0
# Seconds between the aggregator's kill and its restart.
DEAD_SECONDS = 1.5
# Longest wait in seconds, at the end of a run, until the MicroPython device is connected again.
RETURN_SECONDS = 30.0
_POLL_SECONDS = 0.1


class Display(Protocol):
    """Shows the progress of a demonstration."""

    def say(self, sentence: str, *, loud: bool = False) -> None:
        """Show something that happened; `loud` if the user must not miss it."""

    def event(self, event: dict[str, Any]) -> None:
        """Show a line of the aggregator's log: `event`, `message` and facts."""

    def progress(self, done: int, total: int, sent: int, acknowledged: int) -> None:
        """Show the numbers of finished slots, of all slots, and of reports sent and acknowledged."""


def run(options: DemoOptions, folder: Path, display: Display) -> DemoResult:
    """Run the demonstration with all files in `folder`. Raises Invalid for bad input, Failed, or OSError."""
    if options.window is not None and options.kill_device_at is not None:
        raise Invalid("window and kill_device_at exclude each other: a killed device may send a report twice")
    collection = DEMO_COLLECTIONS[options.collect]
    if options.direct and options.window is not None:
        raise Invalid("window needs broker mosquitto, because its log shows when each device published")
    if not options.direct:
        find_mosquitto()
    port = free_port()
    display.say(f"reading the population and making the files of {options.devices} devices")
    plan = prepare(options, folder, port, collection)
    display.say(collection.story(options))
    for note in (*plan.readings.notes, plan.bound_note, plan.rounds_note):
        if note:
            display.say(note)
    missing = f"all devices run under CPython: {NO_MICROPYTHON}" if find_micropython() is None else ""
    if missing:
        display.say(missing, loud=True)
    with Processes(folder, plan.site, log_messages=options.window is not None) as processes:
        if options.direct:
            display.say(f"no broker: devices connect to the server on {HOST}:{port}, each with a password")
        else:
            processes.broker.start()
            display.say(f"devices connect to mosquitto on {HOST}:{port}, each with a password")
        # The campaign begins once all devices are connected, however long the processes take to start.
        _set_state(plan, PAUSED)
        processes.start_aggregator()
        _start_devices(plan, processes, with_micropython=not missing, display=display)
        _set_state(plan, RUNNING)
        _Watch(plan, processes, display).follow()
        if processes.aggregator is None or processes.aggregator.poll() is not None:
            processes.start_aggregator()
        wait_until_online(lambda: processes.words("micropython.log"))
        end(processes.micropython, signal.SIGINT)
        if not processes.drain().holds:
            display.say("not every report was counted or rejected in time", loud=True)
        end(processes.aggregator)
        for event in processes.aggregator_events():
            display.event(event)
        with open_store(plan.config.store_url, read_only=True) as store:
            return collection.result(plan, store, read_ledgers(processes.ledgers()))


def _set_state(plan: PreparedDemo, state: str) -> None:
    """Set the state of the campaign in its store. Create the store if there is none."""
    config = plan.config
    with open_store(config.store_url, campaign=config.campaign.name) as store:
        open_campaign(store, config.campaign, config.stream)
        store.set_meta({STATE: state})


def _start_devices(plan: PreparedDemo, processes: Processes, *, with_micropython: bool, display: Display) -> None:
    options = plan.options
    in_fleet = options.devices - with_micropython
    # A device tries once a slot to reach a server that is away, because a short demonstration would otherwise end too
    # early.
    period = 1000 * plan.config.campaign.slot_seconds
    faults = () if options.kill_device_at is None else ((options.kill_device_at, "kill-sent", plan.names[0]),)
    processes.start_fleet(
        FleetJob(
            str(plan.site.fleet),
            in_fleet,
            str(plan.folder / "readings.npz"),
            str(plan.folder / "fleet.ledger"),
            options.slots,
            per_day=plan.readings.per_day,
            stride=plan.playback.stride,
            days=plan.playback.days,
            faults=faults,
            period=period,
        )
    )
    processes.wait_until_connected(in_fleet)
    display.say(f"one process runs {many(in_fleet, 'device')}, each with its own MQTT connection and random bytes")
    if with_micropython:
        row = options.devices - 1
        columns = range(plan.first_column, plan.first_column + options.slots)
        measured = [plan.measured(row, column) for column in columns]
        processes.start_micropython(plan.names[row], measured, options.slots + 10_000, period=period)
        _wait_until(
            processes,
            lambda: bool(is_online(processes.words("micropython.log"))),
            f"MicroPython could not connect within {CONNECT_SECONDS:.0f} s",
        )
        display.say(f"device {plan.names[row]} runs under real MicroPython, in a process of its own")


def _wait_until(processes: Processes, done: Callable[[], bool], failure: str) -> None:
    """Wait until ``done`` returns True.

    Raises Failed if a process has ended with an error. Raises Failed with the message ``failure`` after
    `CONNECT_SECONDS`.
    """
    deadline = time.monotonic() + CONNECT_SECONDS
    while not done():
        processes.check()
        if time.monotonic() > deadline:
            raise Failed(failure)
        time.sleep(_POLL_SECONDS)


class _Watch:
    """Follows the fleet until it has ended; kills the server if the options demand it, and starts it again."""

    def __init__(self, plan: PreparedDemo, processes: Processes, display: Display):
        self._plan = plan
        self._processes = processes
        self._display = display
        self._tail = LedgerTail(plan.folder / "fleet.ledger")
        self._own = FleetLedger(plan.folder / "demo.ledger")
        self._kill_at = plan.options.kill_server_at
        self._restart_at: float | None = None

    def follow(self) -> None:
        """Wait until the fleet's process has ended. Raises Failed."""
        plan, processes = self._plan, self._processes
        campaign = plan.config.campaign
        pauses = (len(plan.rounds) + 1) * (campaign.lead_slots + campaign.settle_slots + 2)
        deadline = time.monotonic() + sum(plan.rounds) + pauses + plan.options.slots + SLACK_SECONDS
        assert processes.fleet is not None
        while processes.fleet.poll() is None:
            time.sleep(_POLL_SECONDS)
            for event in processes.aggregator_events():
                self._display.event(event)
                if event.get("event") == "failed":
                    raise Failed(f"the server failed: {event.get('message')}")
            self._kill_and_restart(self._progress())
            if time.monotonic() > deadline:
                raise Failed(
                    "the demo has not ended in time; the end of the server's log:"
                    f" {processes.words('aggregator.log')[-500:]}"
                )
        check_alive(processes.fleet, "the fleet", processes.words("fleet.log"))
        self._own.close()

    def _progress(self) -> int | None:
        """Show the progress; return the number of the report slot, None before the report phase."""
        sent, rounds = self._tail.poll(), self._plan.rounds
        now = int(time.time())
        done, report_slot = 0, None
        for number, play in enumerate(sent.plays):
            over = max(0, now - play.first)
            if play.phase == REPORT:
                report_slot = over if now >= play.first else None
                done = sum(rounds) + min(over, self._plan.options.slots)
            else:
                done = sum(rounds[:number]) + min(over, rounds[number])
        self._display.progress(done, sum(rounds) + self._plan.options.slots, len(sent.sent), len(sent.acked))
        return report_slot

    def _kill_and_restart(self, report_slot: int | None) -> None:
        processes = self._processes
        if self._restart_at is not None:
            if time.monotonic() >= self._restart_at:
                processes.start_aggregator()
                self._restart_at = None
                self._display.say("the server is started again", loud=True)
        elif self._kill_at is not None and report_slot is not None and report_slot >= self._kill_at:
            self._own.fault("aggregator_killed")
            self._own.flush()
            end(processes.aggregator, signal.SIGKILL)
            self._kill_at = None
            self._restart_at = time.monotonic() + DEAD_SECONDS
            self._display.say(f"the server is killed (kill -9) in report slot {report_slot}", loud=True)
        elif processes.aggregator is None or processes.aggregator.poll() is not None:
            raise Failed(f"the server ended too early; the end of its log: {processes.words('aggregator.log')[-500:]}")


def is_online(log: str) -> bool | None:
    """Tell from the log of `device/examples/unix_device.py` whether it is connected; None without a state.

    The device prints its state as ``state WORD``, or as ``state SENTENCE`` after an error. It is connected in all
    states but ``offline`` and errors.
    """
    states = [line.removeprefix("state ") for line in log.splitlines() if line.startswith("state ")]
    return None if not states else states[-1] != "offline" and " " not in states[-1]


def wait_until_online(log: Callable[[], str], seconds: float = RETURN_SECONDS) -> None:
    """Wait until the log's device is connected, at most ``seconds``. Do not wait if the log has no state."""
    deadline = time.monotonic() + seconds
    while is_online(log()) is False and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
