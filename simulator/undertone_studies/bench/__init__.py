"""Benchmarks in one form: baseline and ours in the same run, interleaved, as rows.

Each module of this package except `row` is a benchmark: ``rows(quick: bool = False) -> list[Row]``.
"""

import importlib
import pkgutil

from undertone_shared.errors import Invalid
from undertone_studies.bench.row import Row


def names() -> list[str]:
    """The benchmarks there are."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__) if module.name != "row")


def run(name: str, quick: bool = False) -> list[Row]:
    """The rows of one benchmark; ``quick`` takes a fraction of the time and is less exact. Raises Invalid."""
    if name not in names():
        raise Invalid(f"there is no benchmark {name!r}, expected one of {', '.join(names())}")
    found: list[Row] = importlib.import_module(f"{__name__}.{name}").rows(quick=quick)
    return found
