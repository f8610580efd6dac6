"""Table of the mechanisms that people name: in plans, in simulations, and for a certificate.

To let people name a mechanism, write one line in `NAMES`. Commands, settings and simulations look up every name here.
So a name either means the same mechanism everywhere, or it is refused. Help texts list the names by hand;
`tests/test_tables.py` compares them with this table.
"""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import partial

from undertone_aggregator.design import continuous, window
from undertone_aggregator.design.mechanisms import Mechanism
from undertone_shared.checks import check_integer
from undertone_shared.errors import Invalid
from undertone_shared.stream import GAUSSIAN, ONE_BIT
from undertone_shared.table import TableMechanism

Epsilon = Fraction | float | str
# Var(decoded | reading) as a function of the reading in [-1, 1].
Formula = Callable[[float], float]
# The θ for which `undertone certify` designs a table. The table's variance in units of (θ/2)² hardly depends on θ.
CERTIFIED_THETA = 1000


@dataclass(frozen=True)
class Certified:
    """How `undertone certify` makes a mechanism.

    ``make`` (epsilon, size): returns the mechanism; ``size`` is the value of the option ``sized`` ("levels" or "bins"),
    if the mechanism has one. ``formula`` (ε): the closed form of its variance; None without one. ``worst_only``: only
    the largest value of the formula is compared. ``theta``: the range [0, theta] for which the mechanism is made.
    """

    make: Callable[[str, int], Mechanism]
    formula: Callable[[float], Formula] | None = None
    sized: str | None = None
    worst_only: bool = False
    theta: int = 2


@dataclass(frozen=True)
class Fixed:
    """A mechanism that does not depend on the readings: ``make`` (epsilon, levels) returns it.

    ``as_hybrid``: θ is chosen as for the Hybrid, by the Hybrid's largest variance over all readings. If False, θ is
    chosen by the mechanism's own mean variance at the readings that the rounds found.
    """

    make: Callable[[Epsilon, int], Mechanism]
    as_hybrid: bool = False


@dataclass(frozen=True)
class Designed:
    """A table that is designed for the readings of the threshold rounds.

    If it lowers the Hybrid's mean variance by less than the share ``least_gain``, devices use the Hybrid instead. None:
    devices use the table whatever it gains. If there is no table, they use the Hybrid.
    """

    least_gain: float | None = None


@dataclass(frozen=True)
class Named:
    """What a name means. ``certified``: for a certificate; ``reporting``: in a campaign. None: the name is not offered
    there.
    """

    certified: Certified | None = None
    reporting: Fixed | Designed | None = None


def _square_wave(epsilon: str, bins: int) -> Mechanism:
    return window.square_wave(epsilon, range(check_integer("bins", bins, 2, 256) + 1))


def _least_worst_table(epsilon: str, levels: int) -> TableMechanism:
    # This import is inside the function because the solver takes a while to load.
    from undertone_aggregator.design.table import LEVELS, NoTable, optimal_table

    try:
        return optimal_table(epsilon, CERTIFIED_THETA, levels=min(levels, LEVELS))
    except NoTable as error:
        raise Invalid(f"there is no table: {error}") from None


def _worst_hybrid(epsilon: float) -> Formula:
    worst = continuous.worst_hybrid_variance(epsilon)
    return lambda _: worst


def _best_window(epsilon: float) -> Formula:
    return partial(continuous.window_variance, epsilon, continuous.best_window_share(epsilon))


def _of_reading(variance: Callable[[float, float], float]) -> Callable[[float], Formula]:
    """Return ε -> (reading -> variance) for a closed form of (ε, reading)."""
    return lambda epsilon: partial(variance, epsilon)


# With the mechanism "auto", a table is used only if it lowers the mean variance by at least this share, because
# broadcasting the table costs traffic.
LEAST_GAIN = 0.005
NAMES: dict[str, Named] = {
    "auto": Named(reporting=Designed(LEAST_GAIN)),
    "stochastic-rounding": Named(
        Certified(
            lambda epsilon, _: window.stochastic_rounding(epsilon), _of_reading(continuous.stochastic_rounding_variance)
        )
    ),
    "hybrid": Named(
        Certified(window.hybrid, _of_reading(continuous.hybrid_variance), "levels"),
        Fixed(window.hybrid, as_hybrid=True),
    ),
    "piecewise": Named(
        Certified(window.piecewise, _of_reading(continuous.piecewise_variance), "levels"), Fixed(window.piecewise)
    ),
    "piecewise-optimal": Named(Certified(window.piecewise_optimal, _best_window, "levels", worst_only=True)),
    "optimal": Named(
        Certified(_least_worst_table, _worst_hybrid, "levels", worst_only=True, theta=CERTIFIED_THETA), Designed()
    ),
    "square-wave": Named(Certified(_square_wave, sized="bins")),
}


@dataclass(frozen=True)
class NamedStream:
    """What a name means in [stream]: the ``law`` of a device's noise; whether it is ``independent`` between slots."""

    law: str
    independent: bool


STREAMS: dict[str, NamedStream] = {
    "gaussian": NamedStream(GAUSSIAN, False),
    "one-bit": NamedStream(ONE_BIT, False),
    "direct": NamedStream(GAUSSIAN, True),
}


def stream_as(name: str) -> NamedStream:
    """Return what a name means in [stream]. Raises Invalid."""
    if name not in STREAMS:
        raise Invalid(f"mechanism is {name!r}, expected one of {', '.join(STREAMS)}")
    return STREAMS[name]


def certified_names() -> tuple[str, ...]:
    """Return the names that `undertone certify` takes."""
    return tuple(name for name, named in NAMES.items() if named.certified is not None)


def reporting_names() -> tuple[str, ...]:
    """Return the names that a campaign takes."""
    return tuple(name for name, named in NAMES.items() if named.reporting is not None)


def certified_as(name: str) -> Certified:
    """Return how the mechanism of this name is made for a certificate. Raises Invalid."""
    named = NAMES.get(name)
    if named is None or named.certified is None:
        raise Invalid(f"mechanism is {name!r}, expected one of {', '.join(certified_names())}")
    return named.certified


def reporting_as(name: str) -> Fixed | Designed:
    """Return how a campaign makes the mechanism of this name. Raises Invalid."""
    named = NAMES.get(name)
    if named is None or named.reporting is None:
        raise Invalid(f"mechanism is {name!r}, expected one of {', '.join(reporting_names())}")
    return named.reporting
