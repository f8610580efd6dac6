"""Numbers that people type into the phone's app are accepted, asked about or refused, never changed. Run by node."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from support.ci import unavailable
from undertone_device.host.words import read_words

RANGE = [0, 1000]
SCRIPT = Path(__file__).with_name("numbers.mjs")


def answers(*cases: tuple[str, str, list[int] | None]) -> list[Any]:
    node = shutil.which("node")
    if node is None:
        unavailable("node was not found: apt-get install nodejs")
    lines = [json.dumps([text, read_words(language)["consent"], limits]) for text, language, limits in cases]
    done = subprocess.run(
        [node, "--no-warnings", SCRIPT], input="\n".join(lines), encoding="utf-8", capture_output=True
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize(
    ("text", "language", "value"),
    [
        ("740", "en", 740), (" 740 ", "de", 740), ("-5", "en", -5), ("−5", "de", -5), ("3.7", "en", 3.7),
        ("3,7", "de", 3.7), ("3.7", "de", 3.7), ("3,7", "en", 3.7), ("1,000", "en", 1000), ("1.000", "de", 1000),
        ("1.234.567,5", "de", 1234567.5), ("99 999", "en", 99999), ("1'000", "de", 1000), ("1.000", "en", 1),
    ],
)  # fmt: skip
def test_a_number_is_read_as_the_language_writes_it(text: str, language: str, value: float) -> None:
    assert answers((text, language, None))[0][0] == value


@pytest.mark.parametrize("text", ["", "-", "seven", "1e9", "0x10", "1,00,0", "1.2.3", "3,", "٣", "7 Wh", "NaN"])
def test_what_is_no_number_is_refused(text: str) -> None:
    assert answers((text, "en", RANGE), (text, "de", RANGE)) == [None, None]


def test_a_number_that_does_not_count_is_asked_about() -> None:
    found = answers(*[(text, "en", RANGE) for text in ("-5", "0", "3.7", "1000", "1000.4", "99999")])
    assert [question for _, question in found] == [
        {"key": "below", "limit": 0}, None, {"key": "whole", "limit": 4}, None, {"key": "above", "limit": 1000},
        {"key": "above", "limit": 1000},
    ]  # fmt: skip
    # The readings of a meter have no known range, so no whole number is asked about.
    assert answers(("99999", "en", None)) == [[99999, None]]
