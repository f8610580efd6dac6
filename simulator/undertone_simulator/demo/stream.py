"""A demonstration of a stream campaign: the same processes, one epoch, chains, and a device killed mid-stream."""

import json
import math
import signal
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from undertone_aggregator.broker import free_port
from undertone_aggregator.collect import store as stores
from undertone_aggregator.config import Config, parse_config
from undertone_aggregator.design import local_epsilon
from undertone_aggregator.estimate.query import open_store
from undertone_aggregator.estimate.reconstruct import Estimate
from undertone_aggregator.stream_rounds import stream_rule
from undertone_shared.checks import check_integer
from undertone_shared.errors import Invalid
from undertone_shared.intake import unpack
from undertone_shared.report import STREAM
from undertone_shared.stream import StreamRule
from undertone_simulator import populations
from undertone_simulator.demo.amqtt_broker import needs_amqtt, within_reach
from undertone_simulator.demo.run import CONNECT_SECONDS, SLACK_SECONDS, Display, Failed, drain, ledgers, start_broker
from undertone_simulator.demo.stage import NO_EXAMPLE, NO_MICROPYTHON, Stage, end, example_device, find_micropython
from undertone_simulator.fleet_process import Job
from undertone_simulator.ledger import LedgerTail, Sent, read_ledgers
from undertone_simulator.provision import Target, device_names, local_server, make_policy, provision, stream_policy
from undertone_simulator.readings import Readings
from undertone_simulator.verify import Accounts, reconcile

CAMPAIGN = "demo-stream"
SENSOR = "load"
THETA = 1000
LEAD_SLOTS = 3
SETTLE_SLOTS = 2
LARGEST_FLEET = 20_000
# A kill silences a device for so many slots, and costs it a chain.
_CHAINS = 2
_POLL_SECONDS = 0.1


@dataclass(frozen=True)
class StreamOptions:
    """`slots` reports of every device at (ε, δ) for all of them together; `mechanism`, `slew` as in the configuration.

    `seed` fixes the population, never a device's noise; `kill_device_at`: the slot in which a device is killed between
    send and acknowledgement, to begin a new chain. Raises Invalid for numbers out of range.
    """

    devices: int = 200
    slots: int = 48
    epsilon: str = "8"
    delta: float = 1e-5
    slew: float = 0.05
    mechanism: str = "gaussian"
    seed: int = 1
    kill_device_at: int | None = None

    def __post_init__(self) -> None:
        check_integer("devices", self.devices, 2, LARGEST_FLEET)
        check_integer("slots", self.slots, 2, 2000)
        check_integer("seed", self.seed, 0, (1 << 63) - 1)
        local_epsilon(self.epsilon)
        if self.kill_device_at is not None:
            check_integer("kill_device_at", self.kill_device_at, 0, self.slots - 1)


@dataclass(frozen=True)
class StreamSlot:
    """One slot: estimates raw and smoothed, and what only a simulation knows of the devices that reported."""

    slot: int
    reports: int
    estimate: float
    standard_error: float
    smoothed: float
    smoothed_error: float
    truth_clipped: float
    truth_raw: float


@dataclass(frozen=True)
class StreamResult:
    """What the table and the JSON show. ``micropython``: slots that the MicroPython device reported."""

    unit: str
    guarantee: str
    mechanism: str
    rho: float
    micropython: int
    slots: list[StreamSlot]
    accounts: Accounts

    @property
    def measured_error(self) -> float:
        """Root mean square of estimate - truth_clipped."""
        return _rms([one.estimate - one.truth_clipped for one in self.slots])

    @property
    def predicted_error(self) -> float:
        """Root mean square of the standard errors."""
        return _rms([one.standard_error for one in self.slots])

    @property
    def smoothed_error(self) -> float:
        """Root mean square of smoothed - truth_clipped."""
        return _rms([one.smoothed - one.truth_clipped for one in self.slots])

    @property
    def worst(self) -> float:
        """The largest |estimate - truth_clipped| in standard errors."""
        return max(abs(one.estimate - one.truth_clipped) / one.standard_error for one in self.slots)

    def as_json(self) -> dict[str, Any]:
        """The demo's JSON."""
        return {
            "mechanism": self.mechanism,
            "guarantee": self.guarantee,
            "rho": self.rho,
            "unit": self.unit,
            "micropython_reports": self.micropython,
            "measured_error": self.measured_error,
            "predicted_error": self.predicted_error,
            "smoothed_error": self.smoothed_error,
            "slots": [asdict(one) for one in self.slots],
            "accounting": self.accounts.summary(),
        }


@dataclass(frozen=True)
class _Plan:
    options: StreamOptions
    folder: Path
    readings: Readings
    config: Config
    names: list[str]
    rule: StreamRule


def run_stream(options: StreamOptions, folder: Path, display: Display) -> StreamResult:
    """Run everything, keeping all files in `folder`. Raises Invalid for bad input, Failed, or OSError."""
    amqtt = needs_amqtt()
    if amqtt:
        options = within_reach(options, display)
    port = free_port()
    display.say(f"provisioning {options.devices} devices for streams of {options.slots} reports")
    plan = _prepare(options, folder, port)
    missing = NO_EXAMPLE if example_device() is None else NO_MICROPYTHON if find_micropython() is None else ""
    if missing:
        display.say(missing, loud=True)
    with Stage(folder, port, amqtt=amqtt) as stage:
        start_broker(stage, display)
        _start_devices(plan, stage, with_micropython=not missing)
        stage.start_aggregator(folder / "aggregator.toml")
        _follow(plan, stage, display)
        end(stage.micropython, signal.SIGINT)
        if not drain(folder):
            display.say("not every report was judged in time", loud=True)
        end(stage.aggregator)
        return _collect(plan, read_ledgers(ledgers(folder)), "" if missing else plan.names[-1])


def _prepare(options: StreamOptions, folder: Path, port: int) -> _Plan:
    days = -(-options.slots // populations.HALF_HOURS)
    readings = populations.households(options.devices, days, options.seed)
    folder.mkdir(parents=True, exist_ok=True)
    text = _campaign(options, readings, port)
    (folder / "aggregator.toml").write_text(text)
    config = parse_config(text, folder)
    names = device_names(SENSOR, options.devices)
    # One-second slots: every report is written before it is sent, so that a killed device loses none.
    extra = stream_policy(config)
    policy = make_policy(config.campaign, insecure=True, write_seconds=1, boots_per_day=10, **extra)
    provision(config, names, folder, Target("127.0.0.1", port, None), policy)
    readings.save(folder / "readings.npz")
    assert config.stream is not None
    return _Plan(options, folder, readings, config, names, stream_rule(config.campaign, config.stream))


def _campaign(options: StreamOptions, readings: Readings, port: int) -> str:
    return f"""\
{local_server(port)}
[campaign]
name = "{CAMPAIGN}"
sensor = "{SENSOR}"
unit = {json.dumps(readings.unit or "units")}
measure = "sum"
bound = {populations.BOUND}
slot_seconds = 1
cycle = {readings.per_day}
epsilon = {options.epsilon}
report_slots = {options.slots}
lead_slots = {LEAD_SLOTS}
settle_slots = {SETTLE_SLOTS}

[stream]
mechanism = {json.dumps(options.mechanism)}
delta = {options.delta!r}
slew = {options.slew!r}
theta = {THETA}
reports = {options.slots}
chains = {_CHAINS}
"""


def _start_devices(plan: _Plan, stage: Stage, *, with_micropython: bool) -> None:
    options = plan.options
    kill = options.kill_device_at
    faults = () if kill is None else ((kill, "kill-sent", plan.names[0]),)
    job = Job(
        str(plan.folder),
        options.devices - with_micropython,
        str(plan.folder / "readings.npz"),
        str(plan.folder / "fleet.ledger"),
        options.slots,
        per_day=plan.readings.per_day,
        faults=faults,
    )
    stage.start_fleet(job)
    if with_micropython:
        row = options.devices - 1
        measured = [plan.readings.at(row, column) or 0 for column in range(options.slots)]
        stage.start_micropython(plan.names[row], measured, options.slots + 10_000)
    deadline = time.monotonic() + CONNECT_SECONDS
    while not stage.fleet_ready():
        if stage.fleet is None or stage.fleet.poll() is not None or time.monotonic() > deadline:
            raise Failed(f"the fleet did not connect: {stage.words('fleet.log')}")
        time.sleep(_POLL_SECONDS)


def _follow(plan: _Plan, stage: Stage, display: Display) -> None:
    """Return when the fleet has ended."""
    total = plan.options.slots
    deadline = time.monotonic() + total + LEAD_SLOTS + SETTLE_SLOTS + SLACK_SECONDS
    tail = LedgerTail(plan.folder / "fleet.ledger")
    assert stage.fleet is not None
    while stage.fleet.poll() is None:
        time.sleep(_POLL_SECONDS)
        for event in stage.aggregator_events():
            display.event(event)
        sent = tail.poll()
        done = max(0, int(time.time()) - sent.plays[0].first) if sent.plays else 0
        display.progress(min(done, total), total, len(sent.sent), len(sent.acked))
        if stage.aggregator is None or stage.aggregator.poll() is not None:
            raise Failed(f"the aggregator ended: {stage.words('aggregator.log')[-500:]}")
        if time.monotonic() > deadline:
            raise Failed(f"no end in sight; the aggregator's last words: {stage.words('aggregator.log')[-500:]}")
    if stage.fleet.returncode:
        raise Failed(f"the fleet ended with code {stage.fleet.returncode}: {stage.words('fleet.log')}")


def _collect(plan: _Plan, sent: Sent, micropython: str) -> StreamResult:
    reports: dict[int, dict[str, int]] = {}
    for device, payload in sent.sent:
        one = unpack(payload)
        if one.kind == STREAM:
            reports.setdefault(one.slot, {})[device] = one.chain
    if not reports:
        raise Failed("no stream report was sent")
    raw, clipped = _truth(plan, reports)
    with open_store(plan.folder / "store.sqlite") as results:
        estimates = results.estimates()
        smoothed = {one.slot: one for one in results.smoothed()}
        guarantee = results.guarantee
    with stores.open_store(plan.folder / "store.sqlite", read_only=True) as store:
        accounts = reconcile(sent, store)
    slots = [_slot(one, smoothed[one.slot], raw[one.slot], clipped[one.slot]) for one in estimates]
    num, den = plan.rule.rho()
    by_micropython = sum(micropython in devices for devices in reports.values())
    return StreamResult(
        plan.readings.unit, guarantee, plan.options.mechanism, num / den, by_micropython, slots, accounts
    )


def _slot(one: Estimate, smoothed: Estimate, raw: float, clipped: float) -> StreamSlot:
    if one.standard_error is None or smoothed.standard_error is None:
        raise Invalid(f"slot {one.slot} has no standard error")
    return StreamSlot(
        one.slot,
        one.reports,
        one.estimate,
        one.standard_error,
        smoothed.estimate,
        smoothed.standard_error,
        clipped,
        raw,
    )


def _truth(plan: _Plan, reports: dict[int, dict[str, int]]) -> tuple[dict[int, float], dict[int, float]]:
    """Mean reading and mean clipped reading of the devices that reported, by slot."""
    rows = {name: row for row, name in enumerate(plan.names)}
    first = min(reports)
    slew = plan.rule.slew * plan.rule.width / plan.rule.levels
    last: dict[str, float] = {}
    raw, clipped = {}, {}
    for slot in sorted(reports):
        values, paths = [], []
        for device, chain in reports[slot].items():
            reading = float(plan.readings.at(rows[device], slot - first) or 0)
            value = min(max(reading, float(plan.rule.low)), float(plan.rule.theta))
            if chain > 1 and device in last:
                value = min(max(value, last[device] - slew), last[device] + slew)
            last[device] = value
            values.append(reading)
            paths.append(value)
        raw[slot], clipped[slot] = float(np.mean(values)), float(np.mean(paths))
    return raw, clipped


def _rms(values: list[float]) -> float:
    return math.sqrt(float(np.mean(np.square(values))))
