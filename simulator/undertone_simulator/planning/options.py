"""Options of a plan, from the command line to the planner."""

from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated

from undertone_shared.checks import check_integer
from undertone_shared.errors import Invalid
from undertone_simulator.readings.options import FleetOptions

# Length of a campaign in days, if it is not given.
YEAR = 365
COHORT_SHARE = 0.05
STREAM_SLOTS = 48
DELTA = 1e-5
SLEW = "0.05"
QUERY = "slot"
CHAINS = 1
CAMPAIGNS = 4

# The options of each planner, besides `devices` and `epsilon`, which all of them take.
OPTIONS = {
    "reports": "collect error population data unit slot_seconds bound as_papers query mechanism reach cohort_share"
    " days campaigns workers",
    "stream": "collect slots delta slew query chains movement per_report",
    "window": "window population data unit slot_seconds bound delta campaigns workers",
}


@dataclass(frozen=True, kw_only=True)
class PlanOptions(FleetOptions):
    """Options of a plan: the fleet, the privacy and the way of collecting.

    An option that is None was not given: its help names its default. Raises Invalid for an option
    that does not apply to the chosen planner, and for a value out of range.
    """

    devices: Annotated[int, "Number of devices."] = 1000
    epsilon: Annotated[Fraction | float | str, "Privacy of one reading (event level), or of a whole stream."] = "1"
    window: Annotated[
        str | None,
        "A length of time such as 24h: compare all ways of collecting that spend ε in any window of this length.",
    ] = None
    error: Annotated[
        float | str | None,
        "Wanted error of a slot's mean, in the unit of the readings or as a share such as 5%: print how many devices or"
        " which ε this error needs.",
    ] = None
    as_papers: Annotated[
        bool,
        "With reports: collect as the paper of ToPL does: one round of Square Wave; θ for random ranges by its Eq. 8;"
        " reports by the Hybrid; no filter.",
    ] = False
    mechanism: Annotated[
        str | None, "With reports: the mechanism: auto, hybrid, piecewise or optimal (default auto)."
    ] = None
    reach: Annotated[
        float | None,
        "For a designed table: its largest decoded value, divided by the smallest that is possible; 1.01 to 2 (default"
        " 1.25 or 1.1, whichever gives the smaller error with 1 % of false reports).",
    ] = None
    cohort_share: Annotated[
        float | None, f"With reports: share of reports that keeps the threshold up to date (default {COHORT_SHARE})."
    ] = None
    days: Annotated[int | None, f"With reports: length of the campaign in days (default {YEAR})."] = None
    slots: Annotated[int | None, f"With a stream: number of its reports (default {STREAM_SLOTS})."] = None
    delta: Annotated[float | None, "δ of a stream (user level; default 0.00001)."] = None
    slew: Annotated[
        float | str | None, f"With a stream: largest step between reports, as a share of the range (default {SLEW})."
    ] = None
    query: Annotated[
        str | None,
        "With reports: the query that the threshold is best for: shown (default), fleet or ranges:R."
        f" With a stream: slot, or range:M for sums over M slots (default {QUERY}).",
    ] = None
    chains: Annotated[
        int | None, f"With a stream: number of chains: 1, and 1 more for each allowed reboot (default {CHAINS})."
    ] = None
    movement: Annotated[
        float | None, "With a stream: standard deviation of the mean's step per slot (default a quarter of the slew)."
    ] = None
    campaigns: Annotated[
        int | None,
        "Without a stream: number of campaigns that are simulated to find the error of the means that people read"
        f" (default {CAMPAIGNS}).",
    ] = None
    workers: Annotated[
        int | None,
        "Without a stream: number of processes that simulate campaigns; results do not depend on it (default 1).",
    ] = None
    per_report: Annotated[bool, "With a stream: ε and δ are for each report alone, not for the whole stream."] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        others = {name for names in OPTIONS.values() for name in names.split()} - set(OPTIONS[self.planner].split())
        self.refuse(
            [name for name in self.__dataclass_fields__ if name in others],
            "with window" if self.window is not None else f"where collect is {self.planner}",
        )
        if self.cohort_share is not None and not 0 <= self.cohort_share < 1:
            raise Invalid(f"cohort_share is {self.cohort_share!r}, expected a share from 0 to below 1")
        if self.as_papers:
            self.refuse(["campaigns", "workers"], "with as_papers, whose means are not filtered")
        if self.campaigns is not None:
            check_integer("campaigns", self.campaigns, 1, 1000)
        if self.days is not None and not 1 <= self.days <= 100 * 366:
            raise Invalid(f"days is {self.days}, expected 1 to {100 * 366}")

    @property
    def planner(self) -> str:
        """The planner for these options: a key of `OPTIONS`."""
        return "window" if self.window is not None else self.collect or "reports"
