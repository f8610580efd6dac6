"""Mechanisms by name, as the command line and a store of settings call them."""

import inspect
from collections.abc import Callable
from typing import Any

from undertone_central.budget import Epsilon, check_word
from undertone_central.continual import Continual
from undertone_central.counting import Binary, Counter, Simple1, Simple2, TwoLevel
from undertone_central.entropy import FreshBytes
from undertone_central.factorisation import SquareRoot
from undertone_central.pak import Pak
from undertone_central.sanitizer import Sanitizer
from undertone_central.tops import Tops
from undertone_central.unbounded import Hybrid, Monotone, Unbounded
from undertone_shared.errors import Invalid

MECHANISMS: dict[str, Callable[..., Continual]] = {
    "tops": Tops,
    "pak": Pak,
    "simple-1": Simple1,
    "simple-2": Simple2,
    "two-level": TwoLevel,
    "binary": Binary,
    "unbounded": Unbounded,
    "hybrid": Hybrid,
    "square-root": SquareRoot,
    "sanitizer": Sanitizer,
}


def make(mechanism: str, bound: int, epsilon: Epsilon, source: FreshBytes | None = None, **options: Any) -> Continual:
    """The mechanism of that name; options that are None keep their defaults; counters take ``monotone`` too.

    Raises Invalid for an unknown name, for an option that it does not have, and for one that it lacks.
    """
    maker = MECHANISMS[check_word("mechanism", mechanism, tuple(MECHANISMS))]
    known = inspect.signature(maker).parameters
    given = {name: value for name, value in options.items() if value is not None}
    monotone = "monotone" not in known and isinstance(maker, type) and issubclass(maker, Counter)
    monotone = monotone and bool(given.pop("monotone", False))
    for name in given:
        if name not in known:
            owners = ", ".join(n for n, m in MECHANISMS.items() if name in inspect.signature(m).parameters)
            raise Invalid(f"{name} is not an option of {mechanism}, but of {owners or 'no mechanism'}")
    if "horizon" in known and "horizon" not in given:
        raise Invalid(f"{mechanism} needs a horizon: the most values that will ever arrive")
    found = maker(bound, epsilon, source=source, **given)
    return Monotone(found) if monotone and isinstance(found, Counter) else found
