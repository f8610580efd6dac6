"""The pages of results: every experiment's figure, table and notes, with a paragraph on what was found.

The pages are made from the files in their folder, so that one experiment can be repeated, or run longer, without the
others.
"""

import json
import os
import platform
import re
import subprocess
import time
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from undertone_shared.errors import Invalid
from undertone_simulator.fast.parallel import workers
from undertone_studies.outcome import Outcome
from undertone_studies.registry import EXPERIMENTS, StudyOptions, command

# Chapter -> prefixes of the names of its experiments.
CHAPTERS: dict[str, tuple[str, ...]] = {
    "Any 24 hours": ("day",),
    "Threshold and intervals": (
        "theta",
        "coverage",
        "differences",
        "drift",
        "filter",
        "fleets",
        "load",
        "moved",
        "plan",
        "poisoning",
        "selections",
    ),
    "Mechanisms": ("tables", "rivals"),
    "ToPS and ToPL (CCS 2021)": ("tops",),
    "CGM (PVLDB 2021)": ("cgm",),
    "Counting and streaming sanitizers": ("counting",),
}
FURTHER = "Further studies"
# Chapter -> what its studies ask.
QUESTIONS = {
    "Any 24 hours": "Which way to protect any 24 hours has the smallest error?",
    "Threshold and intervals": "Is θ chosen well, do the intervals hold, and what can fake devices do?",
    "Mechanisms": "How large is the error of a designed table, compared with published mechanisms?",
    "ToPS and ToPL (CCS 2021)": "Can the tables and figures of the paper be reproduced?",
    "CGM (PVLDB 2021)": (
        "Can the figures of the paper be reproduced, and how large are the errors of CGM for household loads?"
    ),
    "Counting and streaming sanitizers": "Can the figures of the blog and of the paper be reproduced?",
}
# Chapter -> the words that its studies use.
INTRODUCTIONS = {
    "Any 24 hours": (
        "There are several ways to protect everything that a device reports within any 24 hours. Devices can report in "
        "*turns*: each device reports one slot and then rests. Devices can send a *stream*, whose reports share one "
        "budget. A campaign can also use longer slots, so that a device sends fewer reports. The page "
        "[Concepts](../concepts.md) explains turns and streams. The page [What else you could do](../comparison.md) "
        "compares these ways with each other and with other systems."
    ),
    "Threshold and intervals": (
        "Devices truncate their readings at a threshold θ. In most studies the server chooses θ after some threshold "
        "rounds. The *truncated mean* is the mean of the truncated readings. The *estimate* is for the mean of the "
        "readings themselves: the server adds to the truncated mean what truncation removed, as a model estimates it. "
        "An interval *holds* if it contains the true value. [The threshold](../threshold.md) and [the "
        "filter](../filter.md) explain the methods, and the page [Papers](../papers.md#data) names the data."
    ),
    "Mechanisms": (
        "The *Hybrid* (HM) is the mechanism of the paper of ToPL. It is the same for all readings. A *designed "
        "table* is made for the readings at hand. The default, `auto`, takes a table, or the Hybrid if a table lowers "
        "the variance by less than half a per cent. The page [Designed tables](../tables.md) explains designed "
        "tables, and the page [Papers](../papers.md#data) names the data."
    ),
    "ToPS and ToPL (CCS 2021)": (
        "ToPS publishes a stream of values that a trusted party holds. In ToPL there is no trusted party: each value "
        "gets noise of its own. The page [Central releases](../central.md) explains the commands, and the page "
        "[Papers](../papers.md#data) names the data. MSE is the mean square error, and RMSE is its root. The names of "
        "methods are those of the paper:\n\n- ToPS counts each value above a *threshold* θ as θ, adds noise in a "
        "*hierarchy* (a tree of sums), and predicts the values inside of small parts of the stream with a "
        "*smoother*.\n- NM-E is how ToPS chooses θ: by a noisy maximum of scores. Methods whose name says c = 60 use "
        "the scores of the paper's Eq. 6. Without these words, ToPS and NM-E use our default, `excess`.\n- PAK is an "
        "older mechanism, which takes a noisy percentile of the values as θ. S-PAK and S-P are two ways to compute "
        "this percentile.\n- H2 and H16 are trees with a fan-out of 2 and of 16. A tree is made *consistent* by "
        "changing its noisy sums so that each sum equals the total of its parts, which reduces the noise.\n- SW and "
        "SW-W choose θ in ToPL, from reports of the Square Wave mechanism. SW-W uses the paper's rule, which is "
        "called the white box.\n- *Base* always answers 0."
    ),
    "CGM (PVLDB 2021)": (
        "In a stream, all reports of a device within a window of time share one budget (ε, δ). With CGM, each report "
        "uses a part of the noise of the report before. If a reading differs from the one before by more than a share "
        "C of the range, the device clips this step. The page [Streams](../cgm.md) explains the methods."
    ),
    "Counting and streaming sanitizers": (
        "A counter publishes, after each value of a stream, a noisy sum of all values so far. A sanitizer publishes "
        "noisy values from which one can compute quantiles. For counters as for sanitizers, a trusted party has to "
        "hold the raw values. The page [Central releases](../central.md) explains these mechanisms, and the page "
        "[Papers](../papers.md) names the papers."
    ),
}
SIZE = (
    "**Is your fleet large enough?** The table shows the error of a half-hour's mean in the filtered series, in per "
    "cent of the mean. If the error is above 20, a single half-hour shows little. The means of days have smaller "
    "errors. If somebody may see the readings anyway, [central releases](central.md) are more accurate. If a whole day "
    "must be protected, devices can take turns. The page [Any 24 hours](results/any-24-hours.md) has the errors of "
    "campaigns in turns."
)
# A table with more rows is linked instead of shown.
_LONGEST_TABLE = 12


def write_results(
    options: StudyOptions,
    folder: Path,
    say: Callable[[str], None],
    chosen: Sequence[str] | None = None,
) -> tuple[Path, dict[str, str]]:
    """Run the experiments (all, or those ``chosen``), write their files into ``folder``, and then the pages.

    Workers run several experiments at a time; results do not depend on their number. Returns the path of the first
    page, and for each skipped experiment the reason, such as missing data. Raises OSError.
    """
    skipped: dict[str, str] = {}
    names = EXPERIMENTS.names() if chosen is None else list(chosen)
    began = time.monotonic()
    with workers(options.workers or 1) as hands:
        # With several workers, each study uses one process; with a single worker, a study may use several.
        call = hands.bind(_attempt, replace(options, workers=1) if (options.workers or 1) > 1 else options)
        for name, outcome in zip(names, call([(name,) for name in names], lambda _: None), strict=True):
            if isinstance(outcome, str):
                skipped[name] = outcome
                say(f"{name}: skipped, {outcome}")
                continue
            write(name, outcome, options, folder)
            say(f"{name}: done {time.monotonic() - began:.0f} s after the start")
    return write_page(folder, skipped), skipped


def _attempt(options: StudyOptions, task: tuple[str], tick: Callable[[int], None]) -> Outcome | str:
    """Run the experiment that ``task`` names; return its outcome, or the reason why it could not run."""
    try:
        return EXPERIMENTS.run(task[0], options)
    except (Invalid, FileNotFoundError) as wrong:
        return str(wrong)


def write(name: str, outcome: Outcome, options: StudyOptions, folder: Path) -> None:
    """Write one experiment's files. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    outcome.write(folder, name, command=command(name, options), quick=options.quick, machine=_machine(), **_commit())


def _machine() -> str:
    return f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"


def _commit() -> dict[str, str]:
    """Return {"commit": the clone's commit}, or {} outside a clone."""
    try:
        told = subprocess.run(
            ["git", "rev-parse", "--short=10", "HEAD"],
            cwd=Path(__file__).parent,
            capture_output=True,
            encoding="utf-8",
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return {}
    return {"commit": told.stdout.strip()}


def page_of(folder: Path) -> Path:
    """Return the path of the first page: beside the folder, with the folder's name."""
    return folder.absolute().with_suffix(".md")


def write_page(folder: Path, skipped: Mapping[str, str] | None = None) -> Path:
    """Write the pages of results from the experiments' files in ``folder``; return the path of the first page.

    The first page lies beside ``folder``, the chapters' pages lie in ``folder``. Raises OSError.
    """
    documents = {
        name: json.loads(path.read_text(encoding="utf-8"))
        for name in EXPERIMENTS.names()
        if (path := folder / f"{name}.json").exists()
    }
    for chapter, names in chapters(documents).items():
        (folder / f"{slug(chapter)}.md").write_text(
            chapter_page(chapter, {name: documents[name] for name in names}), encoding="utf-8"
        )
    path = page_of(folder)
    path.write_text(first_page(documents, skipped or {}, folder), encoding="utf-8")
    return path


def redraw(folder: Path) -> list[str]:
    """Write every experiment's files again, with its figure drawn from the stored curves; return their names.

    Raises OSError, and Invalid for a panel with too many lines.
    """
    drawn = []
    for path in sorted(folder.glob("*.json")):
        document = json.loads(path.read_text(encoding="utf-8"))
        facts = {key: document[key] for key in ("command", "quick", "machine", "commit") if key in document}
        Outcome.of(document).write(folder, path.stem, **facts)
        drawn.append(path.stem)
    return drawn


def chapters(documents: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return a map: chapter -> names of its experiments. Chapters without experiments are left out."""
    named = {title: [name for name in documents if chapter_of(name) == title] for title in (*CHAPTERS, FURTHER)}
    return {title: names for title, names in named.items() if names}


def chapter_of(name: str) -> str:
    """Return the chapter of an experiment: the first with a prefix of its name, or the last page."""
    return next((title for title, prefixes in CHAPTERS.items() if name.startswith(prefixes)), FURTHER)


def slug(chapter: str) -> str:
    """Return a chapter's file name without its suffix."""
    return re.sub(r"[^a-z0-9]+", "-", chapter.lower().partition(" (")[0]).strip("-")


def first_page(documents: Mapping[str, Mapping[str, Any]], skipped: Mapping[str, str], out: Path) -> str:
    """Return the index as Markdown; the files are in the folder ``out`` beside it."""
    folder = out.name
    quick = [name for name, document in documents.items() if document["quick"]]
    parts = [
        "# Results",
        *_fleets(documents),
        f"`undertone experiment all --output {out.as_posix()}` repeats every study whose [data](papers.md#data) you"
        " have, and writes these pages anew. With the name of a study in place of `all`, it repeats that study. The"
        " page of a study shows the command that made its results. The table of every study is also a CSV and a JSON"
        f" file in `{out.as_posix()}`. The pages say, study by study, what we found, and what a paper found if the"
        " study follows one.",
    ]
    if quick:
        parts.append(f"These runs were quick, and show only that their experiments work: {', '.join(quick)}.")
    rows = ["| page | what it asks | names of its studies |", "|---|---|---|"]
    for chapter, names in chapters(documents).items():
        named = ", ".join(f"`{name}`" for name in names)
        rows.append(f"| [{chapter}]({folder}/{slug(chapter)}.md) | {QUESTIONS.get(chapter, '')} | {named} |")
    parts.append("\n".join(rows))
    if skipped:
        parts += ["## Not run", "\n".join(f"- {name}: {why}" for name, why in skipped.items())]
    return "\n\n".join(parts) + "\n"


def _fleets(documents: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the table of the study `fleets`, and what it is for; nothing without this study."""
    if "fleets" not in documents:
        return []
    rows = documents["fleets"]["rows"]
    first, *epsilons = rows[0]
    lines = [f"| error of a half-hour's mean, % | {' | '.join(epsilons)} |", "|---|" + "---|" * len(epsilons)]
    for row in rows:
        cells = " | ".join(f"{row[epsilon]:g}" for epsilon in epsilons)
        lines.append(f"| {row[first]:,} {first} | {cells} |")
    return [SIZE, "\n".join(lines), EXPERIMENTS["fleets"].paragraph]


def chapter_page(chapter: str, documents: Mapping[str, Mapping[str, Any]]) -> str:
    """Return a chapter as Markdown, for the folder of its files."""
    introduction = [INTRODUCTIONS[chapter]] if chapter in INTRODUCTIONS else []
    shared = _shared_notes(documents)
    if shared:
        named = [f"- {', '.join(f'`{name}`' for name in names)}: {note}" for note, names in shared.items()]
        introduction.append("Notes that hold for several studies:\n\n" + "\n".join(named))
    sections = (_section(name, document, shared) for name, document in documents.items())
    return "\n\n".join([f"# {chapter}", *introduction, *sections]) + "\n"


def _shared_notes(documents: Mapping[str, Mapping[str, Any]]) -> dict[str, list[str]]:
    """Return a map: note -> names of its studies, for notes of more than one study."""
    names: dict[str, list[str]] = {}
    for name, document in documents.items():
        for note in document["notes"]:
            names.setdefault(note, []).append(name)
    return {note: of for note, of in names.items() if len(of) > 1}


def _section(name: str, document: Mapping[str, Any], shared: Container[str]) -> str:
    outcome = Outcome.of(document)
    outcome = replace(outcome, notes=[note for note in outcome.notes if note not in shared])
    origin = "; ".join(
        [f"`{document['command']}`", *(document[key] for key in ("commit", "machine") if key in document)]
    )
    blocks = [f"## {outcome.title}", origin]
    if paragraph := EXPERIMENTS[name].paragraph:
        blocks.append(paragraph)
    if outcome.panels:
        blocks.append(f"![{outcome.title}]({name}.png)")
    if len(outcome.rows) > _LONGEST_TABLE:
        blocks += [f"[The table]({name}.csv) has {len(outcome.rows)} rows.", *outcome.notes]
    else:
        # The table is shown without its own heading.
        blocks.append(outcome.markdown().partition("\n\n")[2].strip())
    return "\n\n".join(blocks)
