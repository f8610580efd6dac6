"""Experiments and benchmarks by name: every module of their packages is a study, found by pkgutil.

A study's module has a ``TITLE``, where there is more to say a ``PARAGRAPH`` for the page that shows it, and
``run(options)``, which gives an `Outcome` for an experiment and rows for a benchmark. Its name is the module's with -
for _. It is loaded when it is asked for.
"""

import importlib
import pkgutil
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Generic, TypeVar

from undertone_shared.errors import Invalid
from undertone_studies import bench, experiments
from undertone_studies.outcome import Outcome
from undertone_studies.row import Measured

Result = TypeVar("Result")


@dataclass(frozen=True)
class Options:
    """``data``: folder of the real data sets, None without; ``repeats``: None for a short protocol, the paper's is 100.

    ``only``: names of the data sets wanted, empty for all. ``quick``: as little as shows that it runs. ``workers``:
    processes, None for what suits the study; results do not depend on it.
    """

    data: Path | None = None
    repeats: int | None = None
    seed: int = 1
    only: tuple[str, ...] = ()
    quick: bool = False
    workers: int | None = None


@dataclass(frozen=True)
class Study(Generic[Result]):
    """What a study's module says; ``paragraph`` is '' where it says nothing more."""

    title: str
    paragraph: str
    run: Callable[[Options], Result]


class Studies(Generic[Result]):
    """The studies in ``package``; ``kind`` is what a message calls one of them."""

    def __init__(self, kind: str, package: ModuleType) -> None:
        self.kind = kind
        self._package = package

    def names(self) -> list[str]:
        """The studies there are, numbers in their order."""
        names = (module.name.replace("_", "-") for module in pkgutil.iter_modules(self._package.__path__))
        return sorted(names, key=lambda name: [int(part) if part.isdigit() else part for part in _parts(name)])

    def __getitem__(self, name: str) -> Study[Result]:
        """Raises Invalid for an unknown name."""
        if name not in self.names():
            raise Invalid(f"there is no {self.kind} {name!r}, expected one of {', '.join(self.names())}")
        module = importlib.import_module(f"{self._package.__name__}.{name.replace('-', '_')}")
        return Study(module.TITLE, getattr(module, "PARAGRAPH", ""), module.run)

    def run(self, name: str, options: Options) -> Result:
        """Raises Invalid for an unknown name, or where data are needed that are not there."""
        return self[name].run(options)


def _parts(name: str) -> list[str]:
    return re.split(r"(\d+)", name)


EXPERIMENTS: Studies[Outcome] = Studies("experiment", experiments)
BENCHMARKS: Studies[list[Measured]] = Studies("benchmark", bench)


def command(name: str, options: Options) -> str:
    """What makes this experiment's outcome again, but for the data's folder."""
    words = ["undertone experiment", name, *(f"--only {data}" for data in options.only)]
    if options.quick:
        words.append("--quick")
    elif options.repeats is not None:
        words.append(f"--repeats {options.repeats}")
    return " ".join([*words, f"--seed {options.seed}"])
