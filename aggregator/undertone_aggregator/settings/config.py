"""The server's configuration (TOML): parsed, checked, and printed as a sample, all from one definition."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from undertone_aggregator.base.files import read_utf8
from undertone_aggregator.design.budget import Budget
from undertone_aggregator.design.named import STREAMS, reporting_names, stream_as
from undertone_aggregator.settings import plan_checks as check
from undertone_aggregator.settings.broker_options import BrokerOptions, check_broker, check_sessions
from undertone_aggregator.settings.join_options import JoinOptions
from undertone_aggregator.settings.landing_options import LandingOptions
from undertone_aggregator.settings.options import (
    ROUNDS,
    Checked,
    boolean,
    choice,
    integer,
    option,
    parse,
    tables_in,
    text,
)
from undertone_aggregator.settings.outlet_options import OutletOptions
from undertone_aggregator.settings.papers import check_papers, papers_values
from undertone_aggregator.settings.server_options import ServerOptions, StoreOptions
from undertone_aggregator.store.store_address import StoreAddress, store_address
from undertone_shared.campaign import MEASURES, Campaign
from undertone_shared.checks import SMALL
from undertone_shared.errors import Invalid
from undertone_shared.off_board.issue import build
from undertone_shared.report import LARGEST_DIMENSION
from undertone_shared.scalar import Cohort, ReportRule
from undertone_shared.schedule import Schedule
from undertone_shared.stream import StreamRule

if TYPE_CHECKING:
    from undertone_aggregator.estimate.calendar import Days

LARGEST_FILE = 1 << 20
_READING = SMALL - 1
# The two ways of collecting, by the names that configurations and commands use: single reports, or whole streams.
COLLECT = ("reports", "stream")
# The mechanisms that may be tables.
TABLES = ("auto", "optimal")


@dataclass(frozen=True, kw_only=True)
class CampaignPlan(Checked):
    """[campaign]: what is measured, for how long, and at what cost in privacy."""

    TABLE = "campaign"

    name: str = option(..., "the campaign's name, of a-z, 0-9 and -: its MQTT topics contain this name", check.name)
    version: int = option(1, "number of the plan's version: undertone campaign apply writes it, and refuses a change "
                          "that was made to an older version", integer(1, SMALL))  # fmt: skip
    succeeds: str | None = option(None, "the campaign whose devices this one takes over when that campaign ends: "
                                  "undertone campaign succeed writes this option", check.name)  # fmt: skip
    title: str | None = option(None, "what is measured, as the page shows it: one line of at most 80 characters, such "
                               "as Electricity of a home; absent: none", check.title)  # fmt: skip
    sensor: str = option(..., "the sensor whose readings the campaign collects", check.name)
    unit: str = option(..., "the unit, such as Wh: readings are whole multiples of this unit", check.unit)
    measure: str = option("sum", "a slot's value: " + ", ".join(MEASURES), choice(*MEASURES))
    bound: int = option(
        ..., "the largest reading minus offset, which is public; 1: a binary sensor", integer(1, _READING)
    )
    offset: int = option(
        0,
        "the smallest reading; a reading outside the range from offset to offset + bound counts as its nearer end",
        integer(-_READING, _READING),
    )
    slot_seconds: int = option(1800, "length of a slot in seconds", integer(1, 7 * 86400))
    cycle: int = option(48, "number of slots in a natural period, such as a day", integer(1, 1 << 20))
    collect: str = option("reports", "reports: epsilon is for one reading; stream: epsilon is for all reports of a "
                          "device's stream together, see [stream]",
                          choice(*COLLECT))  # fmt: skip
    default: int = option(
        0, "the public value that stands for a reading while the sensor fails", integer(-_READING, _READING)
    )
    epsilon: Fraction = option(..., "privacy budget ε, from 0.05 to 8, of one reading, or in streams of a whole stream",  # noqa: RUF009
                               check.epsilon)  # fmt: skip
    start: int | None = option(None, '"now" or the Unix second of the first slot', check.start)
    rounds: tuple[int, ...] = option(ROUNDS, "number of slots of each threshold round, in which all devices "
                                     "report for the threshold: best whole cycles, and the last round the longest",
                                     check.rounds)  # fmt: skip
    report_slots: int = option(48 * 365, "length of the report phase, in slots", integer(1, 1 << 28))
    epoch_slots: int = option(48 * 7, "slots after which the threshold is chosen again", integer(1, 1 << 28))
    cohort_share: float = option(
        0.05, "share of the report phase's reports from which the threshold is updated", check.share
    )
    cohort_seed: bytes | None = option(
        None, "hexadecimal seed of the schedule, which says when each device reports; absent: a random seed", check.seed
    )
    window: int | None = option(None, "a length such as \"24h\": the guarantee of one reading then covers all "
                                "readings in any window of this length, because devices take turns; absent: every "
                                "device reports in every slot",
                                check.window)  # fmt: skip
    mechanism: str = option("auto", "mechanism after the threshold rounds: auto (a table designed for the readings "
                            "that the rounds found, or the hybrid if the table gains too little), hybrid, piecewise or "
                            "optimal (always the table)",
                            choice(*reporting_names()))  # fmt: skip
    reach: float | None = option(None, "a table's largest decoded value, divided by the smallest that is possible: "
                                 "1.01 to 2. A higher reach lowers the noise, and lets one false report move a mean "
                                 "further; absent: 1.25 if noise outweighs 1 % of false reports, else 1.1",
                                 check.reach)  # fmt: skip
    as_papers: bool = option(False, "true: work as the paper of ToPL does. This sets collect, method, query, bins, "
                             "rounds, mechanism, cohort_share, blocks and filter. Only query (ranges:R or fleet) and "
                             "rounds (one round) may then have other values",
                             boolean)  # fmt: skip
    method: str = option("robust", "how the threshold is chosen: robust, ems or sw-w (the paper's)",
                         choice("robust", "ems", "sw-w"))  # fmt: skip
    query: str = option("shown", "the query that the threshold is best for: shown (a slot as it is shown), fleet (a "
                        "slot by itself), or ranges:R (random ranges of up to R slots)", check.query)  # fmt: skip
    bins: str = option("logarithmic", "bins of the first threshold round: logarithmic, or linear (the paper's)",
                       choice("logarithmic", "linear"))  # fmt: skip
    filter: bool = option(True, "true: people are shown the series smoothed over time; false: the raw series",
                          boolean)  # fmt: skip
    theta_max: int | None = option(None, "the threshold never exceeds this reading, even if reports suggest a larger "
                                   "one; absent: it may be as large as offset + bound",
                                   integer(-_READING, _READING))  # fmt: skip
    blocks: int = option(8, "largest number of blocks of the cycle with thresholds of their own; 1: one for all slots, "
                         "as streams have", integer(1, 8))  # fmt: skip
    levels: int = option(
        256, "number of input levels of the report mechanism; fewer if the threshold is large", integer(1, 4096)
    )
    cells: int = option(128, "number of cells of the Square Wave, the mechanism of the reports for the threshold",
                        integer(2, 256))  # fmt: skip
    lead_slots: int = option(2, "an epoch is broadcast this many slots before it starts", integer(1, 10_000))
    settle_slots: int = option(2, "a slot settles this many slots after its end; until then its reports may come",
                               integer(0, 10_000))  # fmt: skip
    min_reports: int = option(10, "a number that is computed from fewer reports is not published", integer(1, _READING))
    groups: str | None = option(None, "CSV file with the columns device,group; relative to this file", text)
    time_zone: str = option("UTC", "the time zone of the people who are measured, such as Europe/London: the filter "
                            "uses its days, weekends and clock changes", check.zone)  # fmt: skip
    holidays: str | None = option(None, "the country whose holidays are days off, such as GB or GB-SCT (needs "
                                  "pip install 'undertone-ldp[calendar]')", text)  # fmt: skip
    weekend: str = option("auto", "the days of the weekend, such as \"friday, saturday\", or none; auto: those of the "
                          "country in holidays, or Saturday and Sunday", check.weekend)  # fmt: skip

    @property
    def days(self) -> "Days":
        """The time zone and days off, for the filter. Raises Invalid."""
        # Imported here because this loads the numerical libraries, which ingest workers must not load at their start.
        from undertone_aggregator.estimate.calendar import days_of

        return days_of(self.time_zone, self.holidays, self.weekend)

    @property
    def budget(self) -> Budget:
        """The budget of one reading."""
        return Budget(self.epsilon)

    @classmethod
    def completed(cls, table: dict[str, Any]) -> dict[str, Any]:
        """Return the table with the values that `as_papers` sets for options that the table does not contain."""
        return {**papers_values(table.get("cycle")), **table} if table.get("as_papers") is True else table

    def check_together(self) -> None:
        """Raise Invalid for options that contradict each other."""
        if self.as_papers:
            check_papers(self)
        most = self.offset + self.bound
        if not self.offset <= self.default <= most:
            raise Invalid(
                f"campaign.default is {self.default}, expected {self.offset} to {most}: offset to offset + bound"
            )
        if self.theta_max is not None and not self.offset < self.theta_max <= most:
            raise Invalid(
                f"campaign.theta_max is {self.theta_max}, expected more than offset = {self.offset}, and at most"
                f" offset + bound = {most}"
            )
        if self.reach is not None and self.mechanism not in TABLES:
            raise Invalid(
                f"campaign.reach is {self.reach}, but campaign.mechanism is {self.mechanism!r}, which is no table:"
                f" expected mechanism {' or '.join(TABLES)}, or no reach"
            )
        if self.start is not None and self.start % self.slot_seconds:
            raise Invalid(f"campaign.start is {self.start}, expected a multiple of slot_seconds = {self.slot_seconds}")

    @property
    def stride(self) -> int:
        """Slots from one report of a device to its next; 1 without a window.

        For a window of w slots, the smallest number from w + 1 on that is coprime to the slots of a cycle.
        """
        if self.window is None:
            return 1
        # The value of a counter is a difference from the reading one slot earlier, so the device rests one slot more.
        slots = -(-self.window // self.slot_seconds) + (self.measure == "counter")
        return check.coprime_near(slots + 1, slots + 1, self.cycle)

    @property
    def cohort_stride(self) -> int:
        """In the report phase, every n-th report of a device is for the threshold: this n, or 0 if no report is."""
        return check.coprime_near(1 / self.cohort_share, 2, self.cycle, self.stride) if self.cohort_share else 0

    @property
    def report_share(self) -> float:
        """The share of reports in the report phase that are about readings, and not for the threshold."""
        return 1 - 1 / self.cohort_stride if self.cohort_stride else 1.0

    def schedule(self, seed: bytes, cohort_stride: int) -> Schedule:
        """Return the schedule of an epoch, from which each device derives the slots in which it reports."""
        return Schedule(seed, self.stride, cohort_stride)

    def epoch(
        self,
        first: int,
        last: int,
        *,
        cohort: Cohort | None = None,
        report: ReportRule | None = None,
        stream: StreamRule | None = None,
        schedule: Schedule | None = None,
    ) -> Campaign:
        """Return the epoch from slot ``first`` to ``last``. Raises Invalid.

        It ends earlier if ``last`` would end after the largest Unix second of 32 bits.
        """
        return build(
            name=self.name,
            sensor=self.sensor,
            unit=self.unit,
            measure=self.measure,
            offset=self.offset,
            bound=self.bound,
            slot_seconds=self.slot_seconds,
            cycle=self.cycle,
            epoch=first * self.slot_seconds,
            last_slot=min(last, 0xFFFFFFFF // self.slot_seconds - 1),
            default=self.default,
            cohort=cohort,
            report=report,
            stream=stream,
            schedule=schedule,
        )


@dataclass(frozen=True, kw_only=True)
class StreamPlan(Checked):
    """Table [stream], for collect = stream: its delta and the campaign's epsilon cover a whole stream (user level)."""

    TABLE = "stream"

    mechanism: str = option("gaussian", "gaussian (correlated noise), one-bit, or direct (independent noise)",
                            choice(*STREAMS))  # fmt: skip
    delta: float = option(1e-5, "delta of a whole stream", check.delta)
    slew: Fraction = option(Fraction(1, 20), "largest step from one report to the next, as a "  # noqa: RUF009
                            "share of the range: above 0 and below 1/2", check.slew)  # fmt: skip
    share: Fraction | None = option(None, "share r of a report's noise that the next one uses again, rounded "  # noqa: RUF009
                                    "down to 256ths; absent: the share with the least variance",
                                    check.noise_share)  # fmt: skip
    theta: int | None = option(None, "the threshold minus offset: larger readings are truncated to the threshold; "
                               "absent: the threshold round chooses it or, without a round, it is the bound",
                               integer(1, _READING))  # fmt: skip
    round_slots: int = option(0, "number of slots of a threshold round before the stream: each device sends one Square "
                              "Wave report there, and theta is chosen from these reports; 0: no round",
                              integer(0, 10_000))  # fmt: skip
    round_epsilon: Fraction | None = option(None, "epsilon of the threshold round's report: a "  # noqa: RUF009
                                            "part of campaign.epsilon; the stream has the rest",
                                            check.epsilon)  # fmt: skip
    dimension: int = option(
        1, "number of coordinates of a reading, all within the same range", integer(1, LARGEST_DIMENSION)
    )
    reports: int = option(48, "reports of one stream", integer(1, 0xFFFF))
    chains: int = option(2, "number of chains of one stream: 1, and 1 more for each reboot allowed", integer(1, 0xFFFF))
    lag: int = option(1, "number of chains that take turns, such as 7 for the days of a week", integer(1, 1024))
    restart: int = option(0, "a chain ends after this number of missed reports; 0: never", integer(0, 0xFFFF))
    renewal: int = option(0, "slots after which a new stream with a budget of its own begins; 0: one stream",
                          integer(0, 1 << 24))  # fmt: skip

    def check_together(self) -> None:
        """Raise Invalid for options that contradict each other, or that contradict the stream's mechanism."""
        if self.share is not None and stream_as(self.mechanism).independent:
            raise Invalid(f"stream.share is {self.share}, expected no share: {self.mechanism} has independent noise")
        if (self.round_slots == 0) != (self.round_epsilon is None):
            part = self.round_epsilon or "absent"
            raise Invalid(
                f"stream.round_slots is {self.round_slots} and stream.round_epsilon is {part}, expected"
                " both for a threshold round, or neither"
            )
        if not self.round_slots:
            return
        if self.theta is not None:
            raise Invalid(f"stream.theta is {self.theta}, expected nothing: the round of stream.round_slots chooses it")
        if self.dimension > 1:
            raise Invalid(f"stream.dimension is {self.dimension}, expected 1 if there is a threshold round")

    def budget(self, epsilon: Fraction) -> Budget:
        """Return the budget of the stream's reports: what a threshold round leaves of the campaign's budget. Raises
        Invalid.

        By sequential composition, a device's reports in the round and in the stream are together (epsilon, delta)
        private.
        """
        part = self.round_epsilon or 0
        if part >= epsilon:
            raise Invalid(f"stream.round_epsilon is {part}, expected less than campaign.epsilon = {epsilon}")
        return Budget.parse(epsilon - part, self.delta)


@dataclass(frozen=True)
class Config:
    """The whole configuration.

    ``folder``: relative paths in it start from here. ``stream``: None for a campaign that collects reports. ``fleet``:
    the folder with the devices' policies, if it is not ``folder``.
    """

    broker: BrokerOptions
    store: StoreOptions
    campaign: CampaignPlan
    server: ServerOptions
    folder: Path
    stream: StreamPlan | None = None
    landing: LandingOptions = field(default_factory=LandingOptions)
    outlet: OutletOptions = field(default_factory=OutletOptions)
    join: JoinOptions = field(default_factory=JoinOptions)
    fleet: Path | None = None

    @property
    def store_url(self) -> str:
        """The address that `open_store` takes."""
        return str(self.store_address)

    @property
    def store_address(self) -> StoreAddress:
        """Return the store's address; file names are relative to ``folder``. Raises Invalid for an unknown scheme."""
        return store_address(self.store.path).within(self.folder)

    @property
    def disk(self) -> Path:
        """A folder on the store's disk, whose free space is watched. For a database it is the configuration's own
        folder.
        """
        file = self.store_address.file
        return self.folder if file is None else file.parent

    @property
    def shares(self) -> bool:
        """True if workers on several machines can share the campaign, which needs a shared store and a broker."""
        return self.store_address.shared and self.broker.source.broker

    @property
    def sessions(self) -> int:
        """Number of sessions at the brokers, for the workers of all machines together."""
        return self.server.partitions if self.shares else self.server.workers

    @property
    def kind(self) -> str:
        """The kind of the campaign's rules, see `undertone_aggregator.campaign.collection`."""
        return "scalar" if self.stream is None else "stream"

    @property
    def budget(self) -> Budget:
        """The budget of one reading (event level), or of a whole stream (user level)."""
        return self.campaign.budget if self.stream is None else Budget.parse(self.campaign.epsilon, self.stream.delta)

    def path(self, name: str) -> Path:
        """Return the path of a file that the configuration names, relative to ``folder``."""
        return self.folder / name

    def secret(self, name: str) -> Path:
        """Return the path of a secret: the copy that systemd loaded (LoadCredential), or else the file itself."""
        loaded = Path(os.environ.get("CREDENTIALS_DIRECTORY", "")) / Path(name).name
        return loaded if "CREDENTIALS_DIRECTORY" in os.environ and loaded.is_file() else self.path(name)


_TABLES = (
    BrokerOptions,
    StoreOptions,
    CampaignPlan,
    ServerOptions,
    JoinOptions,
    LandingOptions,
    OutletOptions,
    StreamPlan,
)
SECTIONS: dict[str, type[Checked]] = {section.TABLE: section for section in _TABLES}


def parse_config(data: str, folder: Path) -> Config:
    """Return the configuration in a TOML text. Raises Invalid, which names the option, its value and what was
    expected.
    """
    return config_of(tables_in(data, "the configuration"), folder)


def config_of(tables: Mapping[str, Any], folder: Path) -> Config:
    """Return the configuration in these tables. Raises Invalid."""
    for name in tables:
        if name not in SECTIONS:
            raise Invalid(f"the configuration has an unknown table [{name}], expected {', '.join(SECTIONS)}")
    campaign = parse(CampaignPlan, "campaign", tables.get("campaign", {}))
    if "stream" in tables and campaign.collect != "stream":
        raise Invalid(f"the table [stream] is there, but campaign.collect is {campaign.collect!r}, expected 'stream'")
    if campaign.collect == "stream" and "blocks" in tables["campaign"] and campaign.blocks > 1:
        raise Invalid(
            f"campaign.blocks is {campaign.blocks}, expected 1 or nothing: a stream's range is the same all day"
        )
    if campaign.collect == "stream" and "reach" in tables["campaign"]:
        raise Invalid(
            f"campaign.reach is {campaign.reach}, expected nothing: reach is for tables, and streams have none"
        )
    for name, own in (("window", "renewal"), ("theta_max", "theta")) if campaign.collect == "stream" else ():
        if name in tables["campaign"]:
            raise Invalid(
                f"campaign.{name} is {tables['campaign'][name]!r}, but campaign.collect is 'stream': give {own} in"
                " [stream] instead"
            )
    for name in ("query", "bins", "rounds", "method") if campaign.collect == "stream" else ():
        if name in tables["campaign"]:
            raise Invalid(
                f"campaign.{name} is {tables['campaign'][name]!r}, expected nothing: streams do not have this option"
            )
    config = Config(
        parse(BrokerOptions, "broker", tables.get("broker", {})),
        parse(StoreOptions, "store", tables.get("store", {})),
        campaign,
        parse(ServerOptions, "server", tables.get("server", {})),
        folder,
        parse(StreamPlan, "stream", tables.get("stream", {})) if campaign.collect == "stream" else None,
        parse(LandingOptions, "landing", tables.get("landing", {})),
        parse(OutletOptions, "outlet", tables.get("outlet", {})),
        parse(JoinOptions, "join", tables.get("join", {})),
    )
    check_broker(config.broker, config.server.workers)
    config.outlet.check_source(config.broker)
    check_sessions(config.broker, config.server.workers, config.sessions, shared=config.shares)
    return config


def read_config(path: Path) -> Config:
    """Return the configuration in a file. Raises Invalid, or OSError if the file cannot be read."""
    if (size := path.stat().st_size) > LARGEST_FILE:
        raise Invalid(f"{path} has {size} bytes, expected at most {LARGEST_FILE}")
    return parse_config(read_utf8(path), path.parent)
