"""Options of a simulation, from the command line to the engine."""

from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Annotated

from undertone_aggregator.settings.options import ROUNDS as DEFAULT_ROUNDS
from undertone_shared.errors import Invalid
from undertone_simulator.readings.options import FleetOptions

SLOTS = 48
LATE_SLOTS = 48
# Days of each threshold round: those of a server's default plan.
ROUNDS = tuple(slots / 48 for slots in DEFAULT_ROUNDS)

# The options that an aggregator's configuration file replaces.
_CAMPAIGN = [
    "epsilon",
    "rounds",
    "collect",
    "mechanism",
    "cohort_share",
    "blocks",
    "window",
    "delta",
    "slew",
    "theta",
    "dimension",
]
# The options that apply to one way of collecting only.
_ONLY = {"reports": ("rounds", "cohort_share", "blocks", "window"), "stream": ("delta", "slew", "theta", "dimension")}


@dataclass(frozen=True, kw_only=True)
class SimulateOptions(FleetOptions):
    """Options of a simulated campaign: its fleet and readings, its rules, and the behaviour of its devices.

    The campaign comes from these options, or from an aggregator's configuration file ``campaign``, of which ``slots``
    alone replaces a value. An option that is None was not given: its help names its default. Raises
    Invalid for an option that does not apply.
    """

    devices: Annotated[int, "number of devices"] = 20_000
    epsilon: Annotated[
        Fraction | float | str | None,
        "privacy, 0.05 to 8: of one reading (event level), or of a whole stream (default 1)",
    ] = None
    slots: Annotated[
        int | None, f"number of report slots, after the threshold rounds (default {SLOTS}, or the campaign's)"
    ] = None
    seed: Annotated[int, "seed of everything: population, cohort, noise, drop-outs"] = 1
    campaign: Annotated[
        Path | str | None, "an aggregator's configuration file: take its [campaign] instead of the options here"
    ] = None
    rounds: Annotated[tuple[float, ...] | str | None, "of reports: days of each threshold round (default 1,1,1)"] = None
    mechanism: Annotated[
        str | None,
        "of reports: auto (default), hybrid, piecewise or optimal; of a stream: gaussian (default), one-bit or direct",
    ] = None
    cohort_share: Annotated[
        float | None, "of reports: share of them that keeps the threshold up to date (default 0.05)"
    ] = None
    blocks: Annotated[
        int | None, "of reports: largest number of blocks of the day with a θ of their own, 1 to 8 (default 8)"
    ] = None
    window: Annotated[
        str | None,
        "of reports: a time such as 24h; ε is then for all readings in any such window, and devices take turns",
    ] = None
    delta: Annotated[float | None, "δ of a stream (default 0.00001)"] = None
    slew: Annotated[float | None, "of a stream: largest step between reports, a share of the range (default 0.05)"] = (
        None
    )
    theta: Annotated[int | None, "of a stream: truncate readings to it (default the bound)"] = None
    dimension: Annotated[int | None, "of a stream: coordinates of a reading (default 1)"] = None
    drop_out: Annotated[float, "share of reports that never leave their device"] = 0.0
    late: Annotated[float, "share of devices that join late"] = 0.0
    late_slots: Annotated[int | None, f"with --late: number of slots over which they join (default {LATE_SLOTS})"] = (
        None
    )
    liars: Annotated[float, "share of devices that always send the largest symbol"] = 0.0
    chunk: Annotated[int, "number of devices simulated at a time; results do not depend on it"] = 1 << 17
    workers: Annotated[int, "number of processes; results do not depend on it"] = 1
    dask: Annotated[str | None, "address of a Dask scheduler whose workers take part"] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.late == 0:
            self.refuse(["late_slots"], "without late")
        if self.campaign is not None:
            given = self.given(_CAMPAIGN)
            if given:
                raise Invalid(f"{', '.join(given)} and campaign exclude each other: {self.campaign} has them")
            return
        collect = self.collect or "reports"
        self.refuse(_ONLY["stream" if collect == "reports" else "reports"], f"where collect is {collect}")
