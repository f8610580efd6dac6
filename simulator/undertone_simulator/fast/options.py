"""Options of a simulation, from the command line to the engine."""

from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Annotated

from undertone_shared.checks import check_integer
from undertone_shared.errors import Invalid
from undertone_simulator.readings.options import FleetOptions

SLOTS = 48
LATE_SLOTS = 48
_MOST_SLOTS = 1 << 28

# The options that exclude a campaign's file, which has them.
_CAMPAIGN = [
    "bound",
    "epsilon",
    "as_papers",
    "rounds",
    "collect",
    "method",
    "query",
    "mechanism",
    "reach",
    "cohort_share",
    "blocks",
    "window",
    "delta",
    "slew",
    "theta",
    "dimension",
]
# The options that apply to one way of collecting only.
_ONLY = {
    "reports": ("as_papers", "rounds", "method", "query", "reach", "cohort_share", "blocks", "window"),
    "stream": ("delta", "slew", "theta", "dimension"),
}


@dataclass(frozen=True, kw_only=True)
class SimulateOptions(FleetOptions):
    """Options of a simulated campaign: its fleet and readings, its rules, and the behaviour of its devices.

    The campaign comes from these options, or from a campaign's file ``plan``. Beside such a file, ``slots`` replaces
    the file's value, and no other option changes the campaign. An option that is None was not given: its help names its
    default. Raises Invalid for an option that does not apply.
    """

    devices: Annotated[int, "Number of devices."] = 20_000
    epsilon: Annotated[
        Fraction | float | str | None,
        "Privacy of one reading (event level), or of a whole stream, 0.05 to 8 (default 1).",
    ] = None
    slots: Annotated[
        int | None, f"Number of report slots after the threshold rounds (default {SLOTS}; with --plan, the file's)."
    ] = None
    seed: Annotated[int, "Seed of everything: population, cohort, noise, drop-outs."] = 1
    plan: Annotated[
        Path | str | None, "A campaign's TOML file, which is used in place of options such as --epsilon."
    ] = None
    as_papers: Annotated[
        bool,
        "With reports: collect as the paper of ToPL does: one round of Square Wave; θ for random ranges by EM with the"
        " paper's white box and its Eq. 8; reports by the Hybrid; no filter. An option that contradicts it is refused.",
    ] = False
    rounds: Annotated[
        tuple[float, ...] | str | None,
        "With reports: days of each threshold round (default 1,1,1, or 7,7,7 for daily readings).",
    ] = None
    method: Annotated[
        str | None, "With reports: how the threshold is chosen: robust (default), or the papers' ems or sw-w."
    ] = None
    query: Annotated[
        str | None,
        "With reports: the query that the threshold is best for: shown (default; a slot as it is shown), fleet (a slot"
        " by itself) or ranges:R (random ranges of up to R slots).",
    ] = None
    mechanism: Annotated[
        str | None,
        "Mechanism: with reports auto (default), hybrid, piecewise or optimal; with a stream gaussian (default),"
        " one-bit or direct.",
    ] = None
    reach: Annotated[
        float | None,
        "For a designed table: its largest decoded value, divided by the smallest that is possible; 1.01 to 2 (default"
        " 1.25 if noise outweighs 1 % of false reports, else 1.1).",
    ] = None
    cohort_share: Annotated[
        float | None, "With reports: share of the reports that keeps the threshold up to date (default 0.05)."
    ] = None
    blocks: Annotated[
        int | None, "With reports: largest number of blocks of the day with a θ of their own, 1 to 8 (default 8)."
    ] = None
    window: Annotated[
        str | None,
        "With reports: a time such as 24h; ε covers all readings in any window of this length, and devices report in"
        " turns.",
    ] = None
    delta: Annotated[float | None, "δ of a stream (default 0.00001)."] = None
    slew: Annotated[
        float | None, "With a stream: largest step between reports, as a share of the range (default 0.05)."
    ] = None
    theta: Annotated[
        int | None, "With a stream: devices truncate their readings to this value (default the bound)."
    ] = None
    dimension: Annotated[int | None, "With a stream: number of coordinates of a reading (default 1)."] = None
    drop_out: Annotated[float, "Share of reports that never leave their device."] = 0.0
    late: Annotated[float, "Share of devices that join late."] = 0.0
    late_slots: Annotated[
        int | None, f"With --late: number of slots over which these devices join (default {LATE_SLOTS})."
    ] = None
    liars: Annotated[float, "Share of devices that always send the largest symbol."] = 0.0
    chunk: Annotated[int, "Number of devices simulated at a time; results do not depend on it."] = 1 << 17
    workers: Annotated[int, "Number of processes; results do not depend on it."] = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.slots is not None:
            check_integer("slots", self.slots, 1, _MOST_SLOTS)
        if self.late == 0:
            self.refuse(["late_slots"], "without late")
        if self.plan is not None:
            given = self.given(_CAMPAIGN)
            if given:
                raise Invalid(f"{', '.join(given)} cannot be given with plan: {self.plan} describes the campaign")
            return
        if self.method not in (None, "robust"):
            self.refuse(["blocks"], f"where method is {self.method}, which chooses one θ for all slots")
        collect = self.collect or "reports"
        self.refuse(_ONLY["stream" if collect == "reports" else "reports"], f"where collect is {collect}")
