"""A fact stands on one page only."""

import re
import subprocess
from collections import defaultdict

import pytest

from support.micropython import REPO

# Results are made from rows, and the changelog repeats what pages said at the time. Both are left out.
PAGES = {
    name: " ".join(re.sub(r"^\[[\w-]+\]: .*", "", (REPO / name).read_text("utf-8"), flags=re.MULTILINE).split())
    for name in subprocess.run(
        ["git", "ls-files", "*.md"], cwd=REPO, capture_output=True, encoding="utf-8", check=True
    ).stdout.split()
    if not name.startswith(("docs/results", ".github")) and name != "CHANGELOG.md" and (REPO / name).exists()
}
# A pattern that matches only the sentence with the fact -> the page with this sentence.
FACTS = {
    r"9464, loopback": "docs/operator.md",
    r"pretend to be the server": "docs/operator.md",
    r"lasts 825 days": "docs/operator.md",
    r"--although-refused` sets it anyway": "docs/operator.md",
    r"`upgrade` keeps a copy of each old store": "docs/operator.md",
    r"`LimitNOFILE`": "docs/scale.md",
    r"createdb undertone": "docs/scale.md",
    r"cannot move the counts of a campaign from SQLite": "docs/scale.md",
    r"`durable_queue_type`": "docs/scale.md",
    r"hold BOOTSEL": "docs/boards.md",
    r"dfu-util": "docs/boards.md",
    r"GPIO16 to RST": "docs/boards.md",
    r"DS3231": "docs/boards.md",
    r"48 KB \| 52 KB": "docs/boards.md",
    r"100,000 erasures": "docs/firmware.md",
    r"\| 9,600 \|": "docs/firmware.md",
    r"three days after the last message": "docs/firmware.md",
    r"power cut of the server": "aggregator/README.md",
    r"Σ n_s y_s": "docs/api.md",
    r"/api/v1/campaigns/NAME/facts": "docs/api.md",
    r"--set measure=counter": "docs/sensors.md",
    r"PULL_UP|pull-up": "docs/sensors.md",
    r"this shifts the mean by": "docs/statistician.md",
    r"one device in a hundred is fake": "docs/statistician.md",
    r"memoization": "docs/statistician.md",
    r"several devices in one home": "docs/privacy.md",
    r"no log has an address": "docs/privacy.md",
    r"Quantiles have no \(ε, δ\) of their own": "docs/privacy.md",
    r"masked with a key in a file of its own": "docs/privacy.md",
    r"household, time and reading": "docs/simulation.md",
    r"Do not use Undertone if a trusted party": "docs/comparison.md",
    r"No image of these six boards": "docs/boards.md",
}
# If two pages share this many words in a row, they state the same fact.
RUN = 20


@pytest.mark.parametrize("fact", FACTS)
def test_a_fact_stands_on_its_page_alone(fact):
    assert [name for name, text in PAGES.items() if re.search(fact, text, re.IGNORECASE)] == [FACTS[fact]]


def repeated(pages):
    """Return the runs of words that several pages share -> the names of these pages."""
    places = defaultdict(set)
    for name, text in pages.items():
        words = re.findall(r"[\w'%]+(?:[.,]\w+)*", re.sub(r"\]\([^)]*\)", "]", text).lower())
        for at in range(len(words) - RUN + 1):
            places[" ".join(words[at : at + RUN])].add(name)
    return {words: sorted(names) for words, names in places.items() if len(names) > 1}


def test_no_sentence_stands_on_two_pages():
    assert repeated(PAGES) == {}


def test_a_repeated_sentence_is_seen():
    said = " ".join(f"word{number}" for number in range(RUN))
    assert repeated({"a": f"Here {said}.", "b": f"There, [{said}](page.md)."}) == {said: ["a", "b"]}
    assert repeated({"a": f"Here {said}.", "b": f"There {said.replace('word7', 'other')}."}) == {}
