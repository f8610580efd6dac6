"""Experiments by name. Each is a function of `Options` that gives an `Outcome`; its module is loaded when it runs."""

import importlib
from dataclasses import dataclass
from pathlib import Path

from undertone_shared.errors import Invalid
from undertone_studies.experiments.outcome import Outcome

EXPERIMENTS = {
    "cgm-edrp": ("cgm", "edrp"),
    "cgm-london": ("cgm", "london"),
    "cgm-kaggle": ("cgm", "kaggle"),
    "cgm-taxi": ("cgm", "taxi"),
    "coverage": ("intervals", "coverage"),
    "counting-blog": ("counting_blog", "blog"),
    "counting-sanitizer": ("counting_sanitizer", "blocks"),
    "plan": ("planned", "predictions"),
    "poisoning": ("poisoning", "shift"),
    "tables-edrp": ("tables", "edrp"),
    "tables-ratios": ("tables", "ratios"),
    "theta": ("thresholds", "regret"),
    "tops-table1": ("tops_streams", "table1"),
    "tops-fig1": ("tops_threshold", "fig1"),
    "tops-fig2": ("tops_figures", "fig2"),
    "tops-fig3": ("tops_figures", "fig3"),
    "tops-fig4": ("tops_figures", "fig4"),
    "tops-fig5": ("tops_figures", "fig5"),
    "tops-fig6": ("tops_threshold", "fig6"),
    "tops-fig7": ("tops_threshold", "fig7"),
    "tops-fig8": ("tops_local", "fig8"),
    "tops-fig9": ("tops_local", "fig9"),
    "tops-fig10": ("tops_figures", "fig10"),
}


@dataclass(frozen=True)
class Options:
    """``data``: folder of the real data sets, None without; ``repeats``: None for a short protocol, the paper's is 100.

    ``only``: names of the data sets wanted, empty for all. ``quick``: as little as shows that it runs.
    """

    data: Path | None = None
    repeats: int | None = None
    seed: int = 1
    only: tuple[str, ...] = ()
    quick: bool = False


def names() -> list[str]:
    """The experiments there are."""
    return list(EXPERIMENTS)


def command(name: str, options: Options) -> str:
    """What makes this outcome again, but for the data's folder."""
    words = ["undertone experiment", name, *(f"--only {one}" for one in options.only)]
    if options.quick:
        words.append("--quick")
    elif options.repeats is not None:
        words.append(f"--repeats {options.repeats}")
    return " ".join([*words, f"--seed {options.seed}"])


def run(name: str, options: Options) -> Outcome:
    """Raises Invalid for an unknown name, or where data are needed that are not there."""
    if name not in EXPERIMENTS:
        raise Invalid(f"there is no experiment {name!r}, expected one of {', '.join(EXPERIMENTS)}")
    module, function = EXPERIMENTS[name]
    found: Outcome = getattr(importlib.import_module(f"{__package__}.{module}"), function)(options)
    return found
