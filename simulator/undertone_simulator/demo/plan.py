"""The options of a demonstration, and the files from which it starts."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from undertone_aggregator.design import Budget
from undertone_aggregator.design.named import stream_as
from undertone_aggregator.settings.config import Config
from undertone_aggregator.settings.toml import toml
from undertone_aggregator.store.store import Store
from undertone_shared.checks import check_integer
from undertone_shared.errors import Invalid
from undertone_simulator.readings import populations
from undertone_simulator.readings.bounds import public_bound
from undertone_simulator.readings.loaders import load
from undertone_simulator.readings.options import COLLECT
from undertone_simulator.readings.readings import Readings
from undertone_simulator.site import LocalHome, make_site
from undertone_simulator.wire.ledger import Sent
from undertone_simulator.wire.playback import Playback
from undertone_simulator.wire.verify import Accounts

CAMPAIGN = "demo"
SENSOR = "load"
ROUND_SLOTS = 12
# Days of readings that all threshold rounds together play; each round plays a share of these days.
ROUND_DAYS = 3
LEAD_SLOTS = 3
# The campaign starts one slot later for every 150 devices, because the fleet's process checks the campaign once for
# each device, which takes a few milliseconds.
DEVICES_PER_LEAD_SLOT = 150
SETTLE_SLOTS = 2
LARGEST_SLOTS = 10_000
LARGEST_DEMO = 20_000
# Brokers that can be between devices and aggregator; None: no broker.
BROKERS = (None, "mosquitto")
# Options that apply to streams only.
_STREAM = ("delta", "slew", "mechanism", "theta", "dimension")


@dataclass(frozen=True)
class DemoOptions:
    """Options. `slots` counts report slots.

    `seed` fixes the population and the threshold cohort, never a device's noise.

    `collect`: how the campaign collects. `data`: a file of readings instead of the synthetic households, with its
    `unit` if the file does not name it, and the public `bound`. `kill_server_at`, `kill_device_at`: report slots in
    which the aggregator or a device is killed; it starts again later. `round_slots`: slots of each threshold round. For
    streams: `delta`, `slew`, `mechanism`, `theta` (a public truncation) and `dimension`, as in the configuration; None
    for the default. `as_papers`: collect as the papers do, like the configuration's field of this name. `window`: a
    time such as "16s"; devices then report in turns and rest in between. `broker`: "mosquitto" for a broker between
    devices and aggregator, or None if devices connect to the aggregator itself. Raises Invalid for numbers out of
    range, and for an option that does not apply.
    """

    devices: int = 500
    slots: int = 48
    epsilon: str = "1"
    seed: int = 1
    data: Path | None = None
    unit: str | None = None
    bound: int | None = None
    kill_server_at: int | None = None
    kill_device_at: int | None = None
    round_slots: int = ROUND_SLOTS
    collect: str = "reports"
    delta: float | None = None
    slew: float | None = None
    mechanism: str | None = None
    theta: int | None = None
    dimension: int | None = None
    broker: str | None = None
    window: str | None = None
    as_papers: bool = False

    def __post_init__(self) -> None:
        if self.broker not in BROKERS:
            raise Invalid(f"broker is {self.broker!r}, expected mosquitto, or no such option")
        if self.collect not in COLLECT:
            raise Invalid(f"collect is {self.collect!r}, expected one of {', '.join(COLLECT)}")
        if self.collect == "reports":
            others = [name for name in _STREAM if getattr(self, name) is not None]
            if others:
                raise Invalid(f"{', '.join(others)} cannot be given where collect is reports")
        else:
            others = [name for name in ("window", "as_papers") if getattr(self, name)]
            if others:
                raise Invalid(f"{', '.join(others)} cannot be given where collect is {self.collect}")
        if self.mechanism is not None:
            stream_as(self.mechanism)
        if self.unit is not None and self.data is None:
            raise Invalid(f"unit is {self.unit!r}, expected none: the synthetic households have their own")
        check_integer("devices", self.devices, 2, LARGEST_DEMO)
        check_integer("slots", self.slots, 1, LARGEST_SLOTS)
        check_integer("round_slots", self.round_slots, 1, 1000)
        check_integer("seed", self.seed, 0, (1 << 63) - 1)
        Budget.parse(self.epsilon)
        for name in ("kill_server_at", "kill_device_at"):
            if getattr(self, name) is not None:
                check_integer(name, getattr(self, name), 0, self.slots - 1)

    @property
    def direct(self) -> bool:
        """True if devices connect to the aggregator itself."""
        return self.broker is None


@dataclass(frozen=True)
class PreparedDemo:
    """A prepared demonstration: the population, and the server's folder with the campaign and its devices.

    ``rounds``: slots of each threshold round, () without rounds.
    """

    options: DemoOptions
    site: LocalHome
    readings: Readings
    bound_note: str
    rounds: tuple[int, ...]

    @property
    def folder(self) -> Path:
        """The server's folder, which has logs and ledgers as well."""
        return self.site.folder

    @property
    def config(self) -> Config:
        """The configuration of the campaign."""
        return self.site.config

    @property
    def names(self) -> list[str]:
        """The names of the devices; number i measures row i of the readings."""
        return self.site.names

    @property
    def playback(self) -> Playback:
        """The column of the readings that each slot measures."""
        return playback_of(self.rounds, self.readings.per_day)

    @property
    def rounds_note(self) -> str:
        """A sentence about the readings that threshold rounds measure; empty if they measure every reading."""
        stride, round_days = self.playback.stride, self.playback.days
        if stride == 1:
            return ""
        days = "a day of its own" if round_days == 1 else f"{round_days} days"
        return (
            f"each threshold round plays only one in {stride} readings of {days}, so that a short round sees every time"
            " of day; the report phase plays every reading"
        )

    @property
    def first_column(self) -> int:
        """The column of the readings that devices measure in the first report slot."""
        return len(self.rounds) * self.playback.days * self.readings.per_day

    def measured(self, row: int, column: int) -> int | tuple[int, ...]:
        """Return the reading of device number ``row``: a number, or a tuple if readings have several coordinates.

        Coordinate k is the device's reading k days later. A missing reading is replaced by the public default.
        """
        dimension, default = self.options.dimension or 1, self.config.campaign.default
        days = [self.readings.at(row, column + k * self.readings.per_day) for k in range(dimension)]
        reading = tuple(default if value is None else value for value in days)
        return reading[0] if dimension == 1 else reading


def playback_of(rounds: tuple[int, ...], per_day: int) -> Playback:
    """Return a playback in which each threshold round covers whole days of the readings.

    In the report phase, slot modulo cycle is the half-hour of the day, up to a fixed shift. A round's slots do not
    stand for half-hours, which does no harm: a demonstration's rounds do not use the time of day.
    """
    if not rounds:
        return Playback(per_day, 1)
    days = ROUND_DAYS // len(rounds)
    return Playback(per_day, max(1, days * per_day // rounds[0]), days)


class DemoResult(Protocol):
    """Result of a demonstration."""

    @property
    def accounts(self) -> Accounts:
        """The accounts of all reports."""

    def table(self) -> tuple[str, list[str], list[list[str]]]:
        """Return (title, columns, a row for each slot), narrow enough for 80 columns."""

    def sentences(self) -> list[str]:
        """Return the findings and their meaning as sentences."""

    def side_by_side(self) -> tuple[str, list[str], list[list[str]]]:
        """Return (title, columns, rows): the papers' way and this project's own, from the same readings."""

    def as_json(self) -> dict[str, Any]:
        """Return the result as a JSON object."""


class DemoCollection(Protocol):
    """A way of collecting in a demonstration."""

    def story(self, options: DemoOptions) -> str:
        """Return what will happen, step by step, by the names that the papers give to the steps."""

    def rounds(self, options: DemoOptions, per_day: int) -> tuple[int, ...]:
        """Return the number of slots of each threshold round."""

    def table(self, options: DemoOptions, rounds: tuple[int, ...], bound: int) -> str:
        """Return additional lines of the campaign's configuration: options of [campaign], then tables."""

    def result(self, plan: PreparedDemo, store: Store, sent: Sent) -> DemoResult:
        """Compute the result of a demonstration that has ended. Raises Invalid if there is nothing to show."""


def prepare(
    options: DemoOptions,
    folder: Path,
    port: int,
    collection: DemoCollection,
    *,
    boots_per_day: int = 10,
    workers: int = 1,
) -> PreparedDemo:
    """Read the population, make the server's folder with the campaign, and the devices' files.

    ``port``: the port of loopback to which devices connect. ``boots_per_day``: allowed reboots in every device's
    policy. ``workers``: number of the server's processes that receive reports. Raises Invalid, or OSError.
    """
    readings = _population(options, collection)
    rounds = collection.rounds(options, readings.per_day)
    bound, note = public_bound(readings, options.bound)
    plan = campaign_text(options, readings, bound, collection)
    # Slots take one second, and every report is written before it is sent, so that a killed device loses no report.
    site = make_site(
        folder,
        plan,
        CAMPAIGN,
        options.devices,
        port,
        direct=options.direct,
        server={"workers": workers},
        write_seconds=1,
        boots_per_day=boots_per_day,
    )
    readings.save(folder / "readings.npz")
    return PreparedDemo(options, site, readings, note, rounds)


def _population(options: DemoOptions, collection: DemoCollection) -> Readings:
    if options.data is not None:
        return load(options.data, options.unit, options.devices)
    per_day = populations.HALF_HOURS
    before = ROUND_DAYS if collection.rounds(options, per_day) else 0
    days = before + -(-options.slots // per_day) + (options.dimension or 1) - 1
    return populations.households(options.devices, days, options.seed)


def campaign_text(options: DemoOptions, readings: Readings, bound: int, collection: DemoCollection) -> str:
    """Return the campaign's plan as TOML."""
    table = f"""\
[campaign]
start = "now"
name = "{CAMPAIGN}"
sensor = "{SENSOR}"
unit = {toml(readings.unit or "units")}
measure = "sum"
bound = {bound}
slot_seconds = 1
cycle = {readings.per_day}
epsilon = "{options.epsilon}"
report_slots = {options.slots}
lead_slots = {LEAD_SLOTS + options.devices // DEVICES_PER_LEAD_SLOT}
settle_slots = {SETTLE_SLOTS}
"""
    return table + collection.table(options, collection.rounds(options, readings.per_day), bound)
