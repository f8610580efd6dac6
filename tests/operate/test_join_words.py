"""Sentences of an offer in each language."""

import dataclasses
import string
from fractions import Fraction

import pytest

from undertone_operate.join_offer import shown_up
from undertone_operate.join_words import DEFAULT, LANGUAGES, language_of, percent
from undertone_operate.joining import ENDED, INVALID
from undertone_shared.campaign import MEASURES


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


def fields(template: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(template) if name is not None}


@pytest.mark.parametrize("language", LANGUAGES)
def test_each_language_says_the_same(language):
    words, english = LANGUAGES[language], LANGUAGES[DEFAULT]
    assert set(words.measures) == set(MEASURES)
    for field in dataclasses.fields(words):
        own, expected = getattr(words, field.name), getattr(english, field.name)
        if isinstance(own, dict):
            assert own.keys() == expected.keys()
            if isinstance(next(iter(own.values())), str):
                assert {key: fields(text) for key, text in own.items()} == {
                    key: fields(text) for key, text in expected.items()
                }
        else:
            assert fields(own) == fields(expected)


def test_each_refusal_has_a_sentence():
    from undertone_operate.join_app import STATUS

    assert set(LANGUAGES[DEFAULT].refusals) == {*STATUS, ENDED} - {INVALID}


def test_a_guess_is_rounded_up():
    assert [percent(epsilon) for epsilon in (0.0, 0.5, 1.0, 2.0)] == ["50 %", "63 %", "74 %", "89 %"]
    english, german = LANGUAGES["en"], LANGUAGES["de"]
    assert english.outcome(1.0) == "is at most 74 % sure afterwards"
    assert english.outcome(49.0) == english.outcome(1e6) == "can become practically sure"
    assert (english.count(19827), german.count(19827)) == ("19,827", "19.827")
    assert (english.span(1800), english.span(86400), german.span(7 * 86400)) == ("30 minutes", "1 day", "7 Tage")


def test_a_bound_is_shown_rounded_up():
    assert [shown_up(Fraction(value)) for value in ("1", "0.99999", "48.0001", "12345", "0.05")] == [
        "1", "1", "48.01", "12350", "0.05",
    ]  # fmt: skip
