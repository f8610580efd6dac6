"""The analyst's API, as `undertone` exports it: what the commands do, as functions of Python values."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from undertone_aggregator.design.certificate import DELTA, Certificate, certify_campaign, certify_named, certify_table
from undertone_aggregator.design.published import DELTA as PUBLISHED_DELTA
from undertone_aggregator.design.published import Published, published
from undertone_aggregator.design.stream.certificate import StreamCertificate
from undertone_shared.errors import Invalid

if TYPE_CHECKING:
    from undertone_aggregator.design.stream import StreamComparison
    from undertone_simulator.fast.simulated import Simulated
    from undertone_simulator.planning.fleet_plan import FleetPlan
    from undertone_simulator.planning.window_plan import WindowPlan


def certify(
    mechanism: str | None = None,
    *,
    epsilon: str | float = "1",
    table: Path | str | None = None,
    message: Path | str | None = None,
    delta: float | None = None,
    signer: str | None = None,
    levels: int | None = None,
    bins: int | None = None,
) -> list[Certificate] | list[Certificate | StreamCertificate]:
    """Return the exact privacy, bias and variance of mechanisms, computed from their integer weights.

    Name a mechanism, or give the file of a ``table`` or of a campaign's ``message``: its mechanisms are certified in
    order. The cap on the ratio of two probabilities of a symbol is e^``epsilon``; a stream campaign's cap is
    (``epsilon``, ``delta``). ``levels`` (256 by default, at most 24 for optimal) applies to mechanisms with levels,
    ``bins`` (128) to square-wave. ``signer``: the public key in hex that must have signed the message. Raises Invalid
    for bad input, OSError, and `undertone_aggregator.design.audit.NotCertified` for a mechanism that breaks its cap or
    is biased.
    """
    if (given := sum(source is not None for source in (mechanism, table, message))) != 1:
        counted = f"{given} are given" if given else "none is given"
        raise Invalid(f"expected exactly one of mechanism, table and message, but {counted}")
    apply = {"mechanism": ("levels", "bins"), "table": (), "message": ("delta", "signer")}
    of = "mechanism" if mechanism is not None else "table" if table is not None else "message"
    for name, value in {"levels": levels, "bins": bins, "delta": delta, "signer": signer}.items():
        if value is not None and name not in apply[of]:
            raise Invalid(f"{name} is {value!r}, which does not apply to a {of}")
    if mechanism is not None:
        return [certify_named(mechanism, str(epsilon), levels, bins)]
    try:
        if table is not None:
            return [certify_table(Path(table).read_bytes(), str(epsilon))]
        assert message is not None
        return certify_campaign(Path(message).read_bytes(), str(epsilon), DELTA if delta is None else delta, signer)
    except Invalid as wrong:
        raise Invalid(f"{table or message}: {wrong}") from None


def certify_published(
    mechanism: str = "hybrid",
    *,
    epsilon: str | float = "1",
    reports: int | None = None,
    slots: int = 48,
    fakes: float = 0.0,
    delta: float | None = None,
) -> dict[str, Published]:
    """Return what the published numbers alone reveal about one household: span of time -> (ε, δ) and its assumptions.

    ``reports``: the least number of reports behind a published number. ``slots``: number of published numbers of a day
    that contain a report of the household (1 if devices take turns). ``fakes``: share of the reports that may be fake,
    and so do not hide the household. Raises Invalid.
    """
    if reports is None:
        raise Invalid("reports is missing, expected the least number of reports behind a published number")
    exact = certify_named(mechanism, str(epsilon)).mechanism
    chance = PUBLISHED_DELTA if delta is None else delta
    spans = {"a slot": 1, "a day": slots, "a year": 365 * slots}
    return {span: published(exact, reports, n, delta=chance, fakes=fakes) for span, n in spans.items()}


def plan(**options: Any) -> "FleetPlan | StreamComparison | WindowPlan":
    """Predict what a campaign would give, before anybody deploys it.

    ``options``: the fields of `undertone.PlanOptions`, by name. Returns a `FleetPlan` for reports of single readings.
    With ``collect="stream"`` it returns the comparison of the stream methods, and with ``window`` the comparison of the
    ways of collecting. Raises Invalid, or OSError for a file of readings.
    """
    from undertone_simulator.planning import plan as planner
    from undertone_simulator.planning.options import PlanOptions

    return planner.plan(PlanOptions(**options))


def simulate(*, progress: "Callable[[int, int], None] | None" = None, **options: Any) -> "Simulated":
    """Simulate a whole campaign: the server's estimates, and the truth that only a simulation knows.

    ``options``: the fields of `undertone.SimulateOptions`, by name. ``progress(done, planned)`` gets numbers of
    device-slots. Raises Invalid, or OSError for a file.
    """
    from undertone_simulator.fast import simulate as engine
    from undertone_simulator.fast.options import SimulateOptions

    return engine.simulate(SimulateOptions(**options), progress or (lambda done, planned: None))
