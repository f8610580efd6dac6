"""A drawing has every label of the text beside it, from which it was made, and each drawing is shown on a page."""

import html
import re
import sys

import pytest

from support.micropython import REPO

TEXTS = sorted((REPO / "docs" / "diagrams").glob("*.dot"))
_LABEL = re.compile(r'label="([^"]+)"')


@pytest.mark.parametrize("text", TEXTS, ids=lambda path: path.stem)
def test_the_drawing_is_of_this_text(text):
    labels = {part for label in _LABEL.findall(text.read_text("utf-8")) for part in label.split("\\n")}
    drawn = html.unescape(re.sub(r"<!--.*?-->|<[^>]+>", "\n", text.with_suffix(".svg").read_text("utf-8"), flags=re.S))
    lines = {" ".join(line.split()) for line in drawn.splitlines()}
    assert labels
    assert {label for label in labels if label not in lines} == set()


def test_the_households_card_is_the_one_that_a_device_announces():
    sys.path.append(str(REPO / "scripts"))
    import household_card

    assert household_card.OUT.read_text("utf-8") == household_card.card()


def test_every_drawing_is_shown():
    pages = "".join(path.read_text("utf-8") for path in (REPO / "docs").glob("*.md"))
    assert [text.stem for text in TEXTS if f"diagrams/{text.stem}.svg" not in pages] == []
