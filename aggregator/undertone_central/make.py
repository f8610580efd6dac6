"""Table of the mechanisms by the names that the command line uses, with their options."""

import inspect
from collections.abc import Callable
from typing import Any

from undertone_central.mechanisms.budget import Epsilon, check_word
from undertone_central.mechanisms.continual import Continual
from undertone_central.mechanisms.counting import Binary, Counter, Simple1, Simple2, TwoLevel
from undertone_central.mechanisms.factorisation import SquareRoot
from undertone_central.mechanisms.k_ary import KAry
from undertone_central.mechanisms.pak import Pak
from undertone_central.mechanisms.sanitizer import Sanitizer
from undertone_central.mechanisms.tops import Tops
from undertone_central.mechanisms.unbounded import HybridCounter, Monotone, Unbounded
from undertone_central.noise.entropy import FreshBytes
from undertone_shared.errors import Invalid

MECHANISMS: dict[str, Callable[..., Continual]] = {
    "tops": Tops,
    "pak": Pak,
    "simple-1": Simple1,
    "simple-2": Simple2,
    "two-level": TwoLevel,
    "binary": Binary,
    "k-ary": KAry,
    "unbounded": Unbounded,
    "hybrid": HybridCounter,
    "square-root": SquareRoot,
    "sanitizer": Sanitizer,
}
# The option ``monotone`` wraps a counter, so it is not in the counter's own signature.
_MONOTONE = inspect.Parameter("monotone", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=bool)


# The values that the option ``as_papers`` of ToPS sets for these options, as in the paper. Other values are refused.
AS_PAPERS: dict[str, Any] = {
    "objective": "count",
    "noise": "laplace",
    "smoothing": "paper",
    "smoother": "recent",
    "consistency": "least-squares",
    "update": "none",
    "monotone": False,
}
# Options that have an effect only if another option has certain values. By mechanism: (options, the other option, its
# values); the value None means that the other option is not given.
_APPLY: dict[str, tuple[tuple[tuple[str, ...], str, tuple[str | None, ...]], ...]] = {
    "tops": (
        (("hold_out", "objective", "noise"), "theta", (None,)),
        (("c",), "objective", ("count",)),
        (("share",), "update", ("sequential",)),
    ),
    "pak": ((("hold_out", "delta", "percentile", "threshold", "noise"), "theta", (None,)),),
}
_AS_PAPERS = inspect.Parameter("as_papers", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=bool)


def parameters(mechanism: str) -> dict[str, inspect.Parameter]:
    """Return the options of that mechanism by name, except ``bound``, ``epsilon`` and ``source``.

    Counters also have ``monotone``, and ToPS has ``as_papers``. Raises Invalid for an unknown mechanism.
    """
    maker = MECHANISMS[check_word("mechanism", mechanism, tuple(MECHANISMS))]
    found = dict(inspect.signature(maker, eval_str=True).parameters)
    if "monotone" not in found and isinstance(maker, type) and issubclass(maker, Counter):
        found["monotone"] = _MONOTONE
    if maker is Tops:
        found["as_papers"] = _AS_PAPERS
    return {name: parameter for name, parameter in found.items() if name not in ("bound", "epsilon", "source")}


def make(mechanism: str, bound: int, epsilon: Epsilon, source: FreshBytes | None = None, **options: Any) -> Continual:
    """Make the mechanism of that name. Options that are None keep their defaults. Counters also take ``monotone``.

    With ``as_papers``, ToPS takes the choices of its paper, `AS_PAPERS`. Raises Invalid for an unknown name, for an
    option that the mechanism does not have or does not use, for an option that contradicts ``as_papers``, for a missing
    horizon, and for a value that the mechanism refuses.
    """
    accepted = parameters(mechanism)
    given = {name: value for name, value in options.items() if value is not None}
    for name in given:
        if name not in accepted:
            owners = ", ".join(other for other in MECHANISMS if name in parameters(other))
            raise Invalid(f"{name} is not an option of {mechanism}" + (f", but of {owners}" if owners else ""))
    for idle, other, values in _APPLY.get(mechanism, ()):
        value = given.get(other, accepted[other].default)
        papers = given.get("as_papers", False) and AS_PAPERS.get(other) in values
        named = [name for name in idle if name in given]
        if named and value not in values and not papers:
            raise Invalid(f"{', '.join(named)} cannot be given where {other} is {value}")
    if "horizon" in accepted and "horizon" not in given:
        raise Invalid(f"{mechanism} needs a horizon: the largest number of values that may arrive")
    if given.pop("as_papers", False):
        for name, value in AS_PAPERS.items():
            if given.setdefault(name, value) != value:
                raise Invalid(f"{name} is {given[name]!r}, expected {value!r}: as_papers sets it")
    monotone = accepted.get("monotone") is _MONOTONE and bool(given.pop("monotone", False))
    continual = MECHANISMS[mechanism](bound, epsilon, source=source, **given)
    return Monotone(continual) if monotone and isinstance(continual, Counter) else continual
