"""A load test: a wire fleet against its own aggregator on this machine, or against an existing server.

Without a provisioned fleet a campaign is made for the test: one threshold round of two slots, then the report slots.
Its estimates do not matter, but every report must be accounted for.
"""

import math
import random
import signal
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import numpy as np

from undertone_aggregator.base.open_files import allow_connections
from undertone_aggregator.settings.config import Config, parse_config
from undertone_aggregator.settings.toml import toml
from undertone_aggregator.store.store import open_store
from undertone_operate.device_names import device_names
from undertone_operate.provision import Target, local_server, make_policy, provision, signers
from undertone_operate.provisioned import read_provisioned
from undertone_shared.errors import Invalid
from undertone_simulator.load.load_options import FAULTS, LoadOptions, LoadResult
from undertone_simulator.mosquitto import free_port
from undertone_simulator.processes import NO_MICROPYTHON, Failed, Processes, check_alive, end, find_micropython
from undertone_simulator.readings.populations import Synthetic, population
from undertone_simulator.readings.readings import Readings
from undertone_simulator.wire.faults import REST
from undertone_simulator.wire.fleet_process import CONNECTED, MISSING, PEAK, REFUSED, SKIPPED, FleetJob
from undertone_simulator.wire.ledger import LedgerTail, Sent, read_ledgers
from undertone_simulator.wire.verify import Accounts, reconcile

CAMPAIGN = "load"
SENSOR = "load"
ROUND_SLOTS = 2
_POLL_SECONDS = 0.25
_START_SECONDS = 60.0
_CONNECT_SECONDS = 60.0
_CAMPAIGN_SECONDS = 60.0
_SLACK_SECONDS = 60.0
_DRAIN_SECONDS = 60.0
# Seconds until server and fleet have started, and number of clients that connect in a second.
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
    port = free_port()
    config_file = folder / "aggregator.toml"
    config_file.write_text(_campaign(options, source, port))
    config = parse_config(config_file.read_text(), folder)
    show(f"provisioning {options.clients} devices")
    names = device_names(SENSOR, options.clients)
    policy = make_policy(config.campaign, insecure=True, signers=signers(config), write_seconds=1, boots_per_day=1000)
    provision(config, names, folder, Target("127.0.0.1", port, None), policy)
    with Processes(folder, port) as processes:
        processes.start_aggregator(config_file)
        began = time.monotonic()
        readings = _start(options, folder, folder, names, source, processes)
        _connect(options, processes, show)
        _start_micropython(options, config, names, readings, processes)
        sent = _follow(options, folder, processes, show)
        for child in processes.micropythons:
            end(child, signal.SIGINT)
        seconds = time.monotonic() - began
        accounts = _drain(options, folder, show)
        end(processes.aggregator)
        return _result(options, folder, seconds, sent, accounts, processes)


def _theirs(options: LoadOptions, fleet: Path, folder: Path, source: Synthetic, show: Show) -> LoadResult:
    """Test a broker and an aggregator that already run elsewhere."""
    if options.micropython:
        raise Invalid("micropython devices need a fleet of their own, without --fleet")
    names = [member.name for member in read_provisioned(fleet)]
    if len(names) < options.clients:
        raise Invalid(f"clients is {options.clients}, but {fleet} has {len(names)} devices")
    with Processes(folder, 0) as processes:
        began = time.monotonic()
        _start(options, fleet, folder, names, source, processes)
        _connect(options, processes, show)
        sent = _follow(options, folder, processes, show)
        if not sent.sent:
            raise Failed(f"no report was sent in {options.slots} slots: has the campaign ended?")
        return _result(options, folder, time.monotonic() - began, sent, None, processes)


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
    """Choose (report slot, fault, device), early enough for killed or delayed devices to return before the end."""
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


def _connect(options: LoadOptions, processes: Processes, show: Show) -> None:
    patience = options.ramp_up + _CONNECT_SECONDS
    deadline = time.monotonic() + _START_SECONDS + patience
    begun = False
    while not processes.fleet_ready():
        check_alive(processes.fleet, "the fleet", processes.words("fleet.log"))
        connected = _last_number(processes.words("fleet.log"), CONNECTED)
        if connected is not None and not begun:
            # The clients start to connect only now; until then the process was starting.
            begun, deadline = True, time.monotonic() + patience
        show(f"{connected or 0} of {options.clients} connected")
        if time.monotonic() > deadline:
            missing = _last_line(processes.words("fleet.log"), MISSING)
            raise Failed(
                f"{connected or 0} of {options.clients} clients connected within {_CONNECT_SECONDS:g} s; not {missing}"
            )
        time.sleep(_POLL_SECONDS)


def _follow(options: LoadOptions, folder: Path, processes: Processes, show: Show) -> Sent:
    """Wait until the fleet has ended; return the content of its ledger."""
    tail = LedgerTail(folder / "fleet.ledger")
    assert processes.fleet is not None
    deadline = time.monotonic() + _CAMPAIGN_SECONDS
    while processes.fleet.poll() is None:
        sent = tail.poll()
        state = "reporting" if sent.plays else "waiting for the campaign"
        show(f"{state}: {len(sent.sent)} reports sent, {len(sent.acked)} acknowledged")
        if not sent.plays and time.monotonic() > deadline:
            refused = _last_line(processes.words("fleet.log"), REFUSED) or "none was heard"
            raise Failed(f"no device accepted a campaign within {_CAMPAIGN_SECONDS:g} s: {refused}")
        if options.provisioned is None:
            check_alive(processes.aggregator, "the aggregator", processes.words("aggregator.log"))
            latest = max((play.first for play in sent.plays), default=1 << 40) + options.slots + 32
            if time.time() > latest * options.interval + _SLACK_SECONDS:
                raise Failed(f"no end in sight: {processes.words('aggregator.log')[-500:]}")
        time.sleep(_POLL_SECONDS)
    if processes.fleet.returncode:
        raise Failed(f"the fleet ended with code {processes.fleet.returncode}: {processes.words('fleet.log')[-500:]}")
    return tail.poll()


def _ledgers(folder: Path) -> tuple[Path, ...]:
    return folder / "fleet.ledger", *sorted(folder.glob("micropython-*.log"))


def _drain(options: LoadOptions, folder: Path, show: Show) -> Accounts:
    """Return the accounts once every report is accounted for, or when the time is up."""
    deadline = time.monotonic() + _DRAIN_SECONDS
    with open_store(folder / "store.sqlite", read_only=True) as store:
        while True:
            accounts = reconcile(read_ledgers(_ledgers(folder)), store)
            if accounts.holds or time.monotonic() > deadline:
                return accounts
            show(f"{accounts.counted} of {accounts.sent} reports counted")
            time.sleep(1.0)


def _result(
    options: LoadOptions, folder: Path, seconds: float, sent: Sent, accounts: Accounts | None, processes: Processes
) -> LoadResult:
    waits = [sent.acked[key] - moment for key, moment in sent.sent.items() if key in sent.acked]
    median, late = np.quantile(waits, [0.5, 0.99]).tolist() if waits else (None, None)
    words = processes.words("fleet.log")
    return LoadResult(
        options.clients,
        seconds,
        len(sent.sent) if accounts is None else accounts.sent,
        len(sent.acked) if accounts is None else accounts.acknowledged,
        median,
        late,
        _last_number(words, PEAK),
        _last_number(words, SKIPPED),
        accounts,
        _ledgers(folder),
    )


def _last_number(words: str, what: str) -> int | None:
    """Return the number on the last line that begins with ``what``, None without one."""
    line = _last_line(words, what)
    return int(line) if line else None


def _last_line(words: str, what: str) -> str:
    """Return the rest of the last line that begins with ``what``, '' without one."""
    lines = [line.partition(" ")[2] for line in words.splitlines() if line.startswith(f"{what} ")]
    return lines[-1] if lines else ""


def _campaign(options: LoadOptions, source: Synthetic, port: int) -> str:
    return f"""\
{local_server(port, direct=True)}
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
