"""The language of a request, and the refusals' sentences in this language."""

import pytest

from undertone_operate.join.joining import ENDED, INVALID
from undertone_operate.join.words import DEFAULT, REFUSALS, language_of


@pytest.mark.parametrize(
    ("header", "language"),
    [
        ("", "en"),
        ("de", "de"),
        ("de-AT", "de"),
        ("DE-ch, en;q=0.9", "de"),
        ("en, de;q=0.5", "en"),
        ("fr, de;q=0.3, en;q=0.2", "de"),
        ("fr", "en"),
        ("de;q=0", "en"),
        ("*", "en"),
        ("de;q=nan, de;q=-1, ;;,,", "en"),
        ("x" * 5000 + ", de", "en"),
    ],
)
def test_the_language_that_a_client_prefers(header, language):
    assert language_of(header) == language


def test_each_refusal_has_a_sentence():
    from undertone_operate.join.app import STATUS

    assert set(REFUSALS[DEFAULT]) == {*STATUS, ENDED} - {INVALID}
