"""The results page: every experiment's figure and table, under each what the paper found, what we find, and why.

The page is made of the files in its folder, so that one experiment can be run again, or longer, without the others.
"""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from undertone_shared.errors import Invalid
from undertone_simulator.spread import workers
from undertone_studies.outcome import Outcome
from undertone_studies.registry import EXPERIMENTS, Options, command

# Chapter -> what the names of its experiments begin with.
CHAPTERS: dict[str, tuple[str, ...]] = {
    "Any 24 hours": ("day",),
    "Threshold and intervals": ("theta", "coverage", "drift", "filter", "plan", "poisoning"),
    "Mechanisms": ("tables",),
    "ToPS and ToPL (CCS 2021)": ("tops",),
    "CGM (PVLDB 2021)": ("cgm",),
    "Counting and streaming sanitizers": ("counting",),
}
# A longer table is linked, not shown.
_LONGEST_TABLE = 40


def write_results(
    options: Options,
    folder: Path,
    say: Callable[[str], None],
    chosen: Sequence[str] | None = None,
    *,
    dask: str | None = None,
) -> tuple[Path, dict[str, str]]:
    """Run the experiments (all, or those ``chosen``), write their files into ``folder``, and the page beside it.

    As many at a time as there are workers, or on the cluster at ``dask``: results do not depend on it. Returns the
    page's path, and why an experiment was skipped, by name: its data are missing. Raises OSError.
    """
    skipped: dict[str, str] = {}
    names = EXPERIMENTS.names() if chosen is None else list(chosen)
    began = time.monotonic()
    with workers(options.workers or 1, dask) as hands:
        # Each study in one process, unless it is the only one at work.
        call = hands.bind(_attempt, replace(options, workers=1) if dask or (options.workers or 1) > 1 else options)
        for name, outcome in zip(names, call([(name,) for name in names], lambda _: None), strict=True):
            if isinstance(outcome, str):
                skipped[name] = outcome
                say(f"{name}: skipped, {outcome}")
                continue
            write(name, outcome, options, folder)
            say(f"{name}: done {time.monotonic() - began:.0f} s after the start")
    return write_page(folder, skipped), skipped


def _attempt(options: Options, task: tuple[str], tick: Callable[[int], None]) -> Outcome | str:
    """The outcome, or why there is none: its data are missing."""
    try:
        return EXPERIMENTS.run(task[0], options)
    except (Invalid, FileNotFoundError) as wrong:
        return str(wrong)


def write(name: str, outcome: Outcome, options: Options, folder: Path) -> None:
    """One experiment's files. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    outcome.write(folder, name, command=command(name, options), quick=options.quick)


def page_of(folder: Path) -> Path:
    """Where the page of a folder stands: beside it, by its name."""
    return folder.absolute().with_suffix(".md")


def write_page(folder: Path, skipped: Mapping[str, str] | None = None) -> Path:
    """The page of all experiments whose files are in ``folder``. Raises OSError."""
    documents = {
        name: json.loads(path.read_text()) for name in EXPERIMENTS.names() if (path := folder / f"{name}.json").exists()
    }
    path = page_of(folder)
    path.write_text(page(documents, skipped or {}, folder))
    return path


def page(documents: Mapping[str, Mapping[str, Any]], skipped: Mapping[str, str], out: Path) -> str:
    """The page as markdown, from the experiments' documents; their files are in the folder ``out`` beside it."""
    folder = out.name
    quick = [name for name, document in documents.items() if document["quick"]]
    parts = [
        "# Results",
        f"`undertone experiment all --out {out.as_posix()}` makes this page and everything on it;"
        f" `undertone experiment NAME --out {out.as_posix()}` makes one figure again, longer with `--repeats`, and the"
        " page with it. The command that made a figure stands above it. Every table is a CSV and a JSON file in"
        f" [{folder}]({folder}).",
    ]
    if quick:
        parts.append(f"Quick runs, which show that the experiment runs and not what it finds: {', '.join(quick)}.")
    for chapter, prefixes in CHAPTERS.items():
        mine = [name for name in documents if name.startswith(prefixes)]
        if mine:
            parts += [f"## {chapter}", *(_section(name, documents[name], folder) for name in mine)]
    if skipped:
        parts += ["## Not run", "\n".join(f"- {name}: {why}" for name, why in skipped.items())]
    return "\n\n".join(parts) + "\n"


def _section(name: str, document: Mapping[str, Any], folder: str) -> str:
    outcome = Outcome.of(document)
    blocks = [f"### {outcome.title}", f"`{document['command']}`"]
    if paragraph := EXPERIMENTS[name].paragraph:
        blocks.append(paragraph)
    blocks.append(f"![{outcome.title}]({folder}/{name}.png)")
    if len(outcome.rows) > _LONGEST_TABLE:
        blocks += [f"[{len(outcome.rows)} rows]({folder}/{name}.csv)", *outcome.notes]
    else:
        # The table without its own heading.
        blocks.append(outcome.markdown().partition("\n\n")[2].strip())
    return "\n\n".join(blocks)
