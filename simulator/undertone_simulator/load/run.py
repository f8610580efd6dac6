"""A load test: a wire fleet against its own aggregator on this machine, or against an existing server.

If no fleet is given, the test makes a campaign and its devices: one threshold round of two slots, then the report
slots. Its estimates do not matter, but every report must be accounted for.
"""

import math
import random
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import numpy as np

from undertone_aggregator.base.open_files import allow_connections
from undertone_aggregator.base.plural import many
from undertone_aggregator.settings.config import Config
from undertone_aggregator.settings.toml import toml
from undertone_operate.fleet.read_devices import read_provisioned
from undertone_shared.errors import Invalid
from undertone_simulator.load.load_options import FAULTS, LoadOptions, LoadResult
from undertone_simulator.mosquitto import free_port
from undertone_simulator.processes import (
    CONNECT_SECONDS,
    NO_MICROPYTHON,
    Failed,
    Processes,
    check_alive,
    end,
    find_micropython,
)
from undertone_simulator.readings.populations import Synthetic, population
from undertone_simulator.readings.readings import Readings
from undertone_simulator.site import make_site
from undertone_simulator.wire.faults import REST
from undertone_simulator.wire.fleet_process import PEAK, REFUSED, SKIPPED, FleetJob
from undertone_simulator.wire.ledger import LedgerTail, Sent
from undertone_simulator.wire.verify import Accounts

CAMPAIGN = "load"
SENSOR = "load"
ROUND_SLOTS = 2
_POLL_SECONDS = 0.25
_CAMPAIGN_SECONDS = 60.0
_SLACK_SECONDS = 60.0
# Seconds until server and fleet have started, and the number of clients that connect in each second after that.
_READY_SECONDS = 10.0
_CLIENTS_PER_SECOND = 300


Show = Callable[[str], None]


def run(options: LoadOptions, folder: Path, show: Show) -> LoadResult:
    """Run the whole test in ``folder``; ``show`` gets a line of progress. Raises Invalid, Failed, or OSError."""
    # Child processes inherit the limit: server and fleet both need a descriptor per client.
    allow_connections(options.clients)
    if options.micropython and find_micropython() is None:
        raise Invalid(NO_MICROPYTHON)
    folder.mkdir(parents=True, exist_ok=True)
    source = population(options.population, options.seed)
    if options.provisioned is not None:
        return _theirs(options, options.provisioned, folder, source, show)
    show(f"making the files of {many(options.clients, 'device')}")
    plan = _campaign(options, source)
    site = make_site(folder, plan, CAMPAIGN, options.clients, free_port(), write_seconds=1, boots_per_day=1000)
    with Processes(folder, site) as processes:
        processes.start_aggregator()
        began = time.monotonic()
        readings = _start(options, site.fleet, folder, site.names, source, processes)
        processes.wait_until_connected(options.clients, options.ramp_up + CONNECT_SECONDS, show)
        _start_micropython(options, site.config, site.names, readings, processes)
        sent = _follow(options, folder, processes, show)
        for child in processes.micropythons:
            end(child, signal.SIGINT)
        seconds = time.monotonic() - began
        accounts = processes.drain(show=lambda accounts: show(f"{accounts.counted} of {accounts.sent} reports counted"))
        end(processes.aggregator)
        return _result(options, seconds, sent, accounts, processes)


def _theirs(options: LoadOptions, fleet: Path, folder: Path, source: Synthetic, show: Show) -> LoadResult:
    """Test a server that already runs, with the devices in the folder ``fleet``."""
    if options.micropython:
        raise Invalid(
            f"micropython is {options.micropython}, expected 0 with --fleet: MicroPython devices need a fleet of their"
            " own"
        )
    names = [member.name for member in read_provisioned(fleet)]
    if len(names) < options.clients:
        raise Invalid(f"clients is {options.clients}, expected at most the {many(len(names), 'device')} of {fleet}")
    with Processes(folder) as processes:
        began = time.monotonic()
        _start(options, fleet, folder, names, source, processes)
        processes.wait_until_connected(options.clients, options.ramp_up + CONNECT_SECONDS, show)
        sent = _follow(options, folder, processes, show)
        if not sent.sent:
            raise Failed(f"no report was sent in {many(options.slots, 'slot')}: has the campaign ended?")
        return _result(options, time.monotonic() - began, sent, None, processes)


def _start(
    options: LoadOptions, fleet: Path, folder: Path, names: list[str], source: Synthetic, processes: Processes
) -> Readings:
    days = 1 + -(-(options.slots + ROUND_SLOTS + 16) // source.per_day)
    readings = source.readings(options.clients, days)
    readings.save(folder / "readings.npz")
    processes.start_fleet(
        FleetJob(
            str(fleet),
            options.clients - options.micropython,
            str(folder / "readings.npz"),
            str(folder / "fleet.ledger"),
            options.slots,
            per_day=source.per_day,
            stride=0,
            faults=_faults(options, names[: options.clients - options.micropython]),
            ramp_up=options.ramp_up,
            behaviour=asdict(options.behaviour),
            jitter=options.jitter,
        )
    )
    return readings


def _faults(options: LoadOptions, names: list[str]) -> tuple[tuple[int, str, str], ...]:
    """Choose faults at random: (report slot, fault, device).

    If there are enough slots, faults come early enough for killed or delayed devices to return before the end.
    """
    chance = random.Random(options.seed)
    latest = max(options.slots - REST - 2, 0)
    return tuple(
        (chance.randint(0, latest), FAULTS[name], device)
        for name, share in options.faults.items()
        for device in chance.sample(names, round(share * len(names)))
    )


def _start_micropython(
    options: LoadOptions, config: Config, names: list[str], readings: Readings, processes: Processes
) -> None:
    for row in range(options.clients - options.micropython, options.clients):
        values = [readings.at(row, column) for column in range(readings.slots)]
        measured = [config.campaign.default if x is None else x for x in values]
        processes.start_micropython(names[row], measured, 1 << 20, f"micropython-{names[row]}")


def _follow(options: LoadOptions, folder: Path, processes: Processes, show: Show) -> Sent:
    """Wait until the fleet has ended, or end it at Ctrl-C; return the content of its ledger."""
    tail = LedgerTail(folder / "fleet.ledger")
    assert processes.fleet is not None
    try:
        _wait(options, processes.fleet, tail, processes, show)
    except KeyboardInterrupt:
        if not tail.poll().sent:
            raise
        # After Ctrl-C the test still accounts for what was sent: devices disconnect, and the ledger records lost
        # reports.
        show("stopping")
        end(processes.fleet, signal.SIGTERM)
    check_alive(processes.fleet, "the fleet", processes.words("fleet.log"))
    return tail.poll()


def _wait(
    options: LoadOptions, fleet: "subprocess.Popen[bytes]", tail: LedgerTail, processes: Processes, show: Show
) -> None:
    """Wait until the fleet has ended."""
    deadline = time.monotonic() + _CAMPAIGN_SECONDS
    while fleet.poll() is None:
        sent = tail.poll()
        state = "reporting" if sent.plays else "waiting for the campaign"
        show(f"{state}: {many(len(sent.sent), 'report')} sent, {len(sent.acked)} acknowledged")
        if not sent.plays and time.monotonic() > deadline:
            refused = processes.last_line("fleet.log", REFUSED) or "no campaign came"
            raise Failed(f"no device accepted a campaign within {_CAMPAIGN_SECONDS:g} s: {refused}")
        if options.provisioned is None:
            processes.check()
            latest = max((play.first for play in sent.plays), default=1 << 40) + options.slots + 32
            if time.time() > latest * options.interval + _SLACK_SECONDS:
                raise Failed(
                    "the fleet has not ended in time; the end of the server's log:"
                    f" {processes.words('aggregator.log')[-500:]}"
                )
        time.sleep(_POLL_SECONDS)


def _result(
    options: LoadOptions, seconds: float, sent: Sent, accounts: Accounts | None, processes: Processes
) -> LoadResult:
    waits = [sent.acked[key] - moment for key, moment in sent.sent.items() if key in sent.acked]
    median, late = np.quantile(waits, [0.5, 0.99]).tolist() if waits else (None, None)
    return LoadResult(
        options.clients,
        seconds,
        len(sent.sent) if accounts is None else accounts.sent,
        len(sent.acked) if accounts is None else accounts.acknowledged,
        median,
        late,
        processes.last_number("fleet.log", PEAK),
        processes.last_number("fleet.log", SKIPPED),
        accounts,
        tuple(processes.ledgers()),
    )


def _campaign(options: LoadOptions, source: Synthetic) -> str:
    return f"""\
[campaign]
{_first_slot(options)}
name = "{CAMPAIGN}"
sensor = "{SENSOR}"
unit = {toml(source.unit)}
bound = {source.bound}
slot_seconds = {options.interval}
cycle = {source.per_day}
epsilon = "{options.epsilon}"
rounds = [{ROUND_SLOTS}]
report_slots = {options.slots}
epoch_slots = {options.slots}
mechanism = "hybrid"
lead_slots = 2
settle_slots = 1
""" + ("" if options.window is None else f'window = "{options.window}"\n')


def _first_slot(options: LoadOptions) -> str:
    """Return the line `start = …` for the configuration: the campaign starts when all clients should be connected."""
    ready = time.time() + options.ramp_up + _READY_SECONDS + options.clients / _CLIENTS_PER_SECOND
    return f"start = {math.ceil(ready / options.interval) * options.interval}"
