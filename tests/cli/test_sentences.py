"""A wrong command line is answered by one sentence: what was given, what was expected, and what was perhaps meant."""

import sys

import pytest

from undertone.app import run
from undertone.sentences import with_suggestion


@pytest.fixture
def refused(monkeypatch, capsys):
    """Return a function that runs a wrong command line, and returns its one line on stderr without "error: "."""

    def call(*words):
        monkeypatch.setattr(sys, "argv", ["undertone", *words])
        assert run() == 2
        said = capsys.readouterr()
        assert said.out == ""
        (line,) = said.err.splitlines()
        assert line.startswith("error: ")
        return line.removeprefix("error: ")

    return call


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["plan", "--devices", "ten"], "--devices is 'ten', expected a whole number"),
        (["plan", "--devices=ten"], "--devices is 'ten', expected a whole number"),
        (["plan", "--cohort-share", "x"], "--cohort-share is 'x', expected a number"),
        (["capacity", "--homes", "some", "--homes", "1000"], "--homes is 'some', expected a whole number"),
        (["join", "revoke", "first", "--home", "home"], "ID is not a whole number, expected one such as 5"),
        (["plan", "--devices"], "option '--devices' requires an argument"),
        (["plan", "-5"], "-5 is a number where an option is expected"),
        (["plan", "--devcies", "5"], "there is no option --devcies: did you mean --devices"),
        (["plan", "--mechanism", "hybird"], "expected one of auto, hybrid, piecewise, optimal: did you mean hybrid?"),
        (["simulate", "--mechanism", "hybird"], "did you mean hybrid?"),
        (["query"], "missing argument"),
        (["nonsense"], "no such command 'nonsense'"),
    ],
)
def test_wrong_words_are_one_sentence(refused, words, sentence):
    assert sentence in refused(*words)


def test_only_a_word_that_is_near_is_suggested():
    for sentence in (
        "kind is 'telepathy', expected one of p1, sml",
        "epsilon is '-5', expected a number from 0.05 to 8",
        "there is no store",
    ):
        assert with_suggestion(sentence) == sentence
    assert with_suggestion("collect is 'streem', expected reports, stream").endswith(": did you mean stream?")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            ["plan", "--collect", "stream", "--data", "/nope.csv", "--bound", "7"],
            "--data, --bound cannot be given where collect is stream",
        ),
        (["plan", "--collect", "stream", "--error", "5%"], "error cannot be given where collect is stream"),
        (["plan", "--slew", "0.1"], "slew cannot be given where collect is reports"),
        (["plan", "--per-report"], "--per-report cannot be given where collect is reports"),
        (["plan", "--window", "24h", "--mechanism", "hybrid"], "mechanism cannot be given with window"),
        (["plan", "--window", "24h", "--collect", "reports"], "collect cannot be given with window"),
        (["plan", "--data", "x.csv", "--population", "phones"], "--population and --data exclude each other"),
        (["plan", "--unit", "W"], "unit is 'W', expected none"),
        (["simulate", "--data", "x.csv", "--population", "phones"], "--population and --data exclude each other"),
        (["simulate", "--late-slots", "5"], "--late-slots cannot be given without late"),
        (["simulate", "--unit", "W"], "unit is 'W', expected none"),
        (["simulate", "--collect", "stream", "--blocks", "2"], "blocks cannot be given where collect is stream"),
    ],
)
def test_an_option_of_another_way_is_refused(refused, words, sentence):
    assert sentence in refused(*words)
