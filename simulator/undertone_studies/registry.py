"""Registry of experiments and benchmarks: every module of the packages `experiments` and `bench` is a study.

A study's module has a ``TITLE``, optionally a ``PARAGRAPH`` for its page, and ``run(options)``, which returns an
`Outcome` for an experiment and rows for a benchmark. The study's name is the module's name with - in place of _. The
module is loaded when the study is requested.
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
class StudyOptions:
    """Options of a study. ``data``: folder of the real data sets or None.

    ``repeats``: number of runs, None for a short protocol; the papers have 100.

    ``only``: names of the wanted data sets, empty for all. ``quick``: do the least work that shows that the study runs.
    ``workers``: number of processes, None for the study's default; results do not depend on it.
    """

    data: Path | None = None
    repeats: int | None = None
    seed: int = 1
    only: tuple[str, ...] = ()
    quick: bool = False
    workers: int | None = None


@dataclass(frozen=True)
class Study(Generic[Result]):
    """A study: title, paragraph ('' if there is none) and function."""

    title: str
    paragraph: str
    run: Callable[[StudyOptions], Result]


class Studies(Generic[Result]):
    """The studies in ``package``; ``kind`` is the word for one of them in messages."""

    def __init__(self, kind: str, package: ModuleType) -> None:
        self.kind = kind
        self._package = package

    def names(self) -> list[str]:
        """Return the names of the studies, with numbers in numerical order."""
        names = (module.name.replace("_", "-") for module in pkgutil.iter_modules(self._package.__path__))
        return sorted(names, key=lambda name: [int(part) if part.isdigit() else part for part in _parts(name)])

    def __getitem__(self, name: str) -> Study[Result]:
        """Load a study by name. Raises Invalid for an unknown name."""
        if name not in self.names():
            raise Invalid(f"there is no {self.kind} {name!r}, expected one of {', '.join(self.names())}")
        module = importlib.import_module(f"{self._package.__name__}.{name.replace('-', '_')}")
        return Study(module.TITLE, getattr(module, "PARAGRAPH", ""), module.run)

    def run(self, name: str, options: StudyOptions) -> Result:
        """Run a study. Raises Invalid for an unknown name, or if required data are missing."""
        return self[name].run(options)


def _parts(name: str) -> list[str]:
    return re.split(r"(\d+)", name)


EXPERIMENTS: Studies[Outcome] = Studies("experiment", experiments)
BENCHMARKS: Studies[list[Measured]] = Studies("benchmark", bench)


def command(name: str, options: StudyOptions) -> str:
    """Return the command that reproduces this experiment's outcome, without the data's folder."""
    words = ["undertone experiment", name, *(f"--only {data}" for data in options.only)]
    if options.quick:
        words.append("--quick")
    elif options.repeats is not None:
        words.append(f"--repeats {options.repeats}")
    return " ".join([*words, f"--seed {options.seed}"])
