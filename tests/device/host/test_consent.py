"""What a person reads before agreeing is computed from the policy, rounded to the safe side, in each language."""

import datetime
import json
import math
import re
import string
from typing import Any

import pytest

from support.factory import policy_of
from undertone_device.host import words as languages
from undertone_device.host.consent import Bounds, consent, count, date, figure, fingerprint, odds_above, percent, span
from undertone_device.host.words import read_words
from undertone_shared.campaign import MEASURES
from undertone_shared.policy import Policy, parse_policy

UNIT = 1 << 20
ENGLISH, GERMAN = read_words("en")["consent"], read_words("de")["consent"]
HOUSE = {"cap": [2718, 1000], "slot_seconds": 1800, "reports_per_period": 48, "unit": "Wh"}
STREAM = {"cap": [1, 1], "lifetime": 0, "stream": {"rho": 10000, "period_seconds": 864000, "lifetime": 20000}}


def policy(**changes: Any) -> Policy:
    return parse_policy(json.dumps(policy_of(**HOUSE | changes)).encode())


def rows(found: Policy, language: str = "en") -> dict[str, str]:
    return {key: text for key, _, text in consent(found, read_words(language)["consent"])["rows"]}


def texts(value: Any, place: str = "") -> dict[str, Any]:
    """Each text of a language's file, by its path in the file."""
    if isinstance(value, dict):
        return {key: text for name in value for key, text in texts(value[name], f"{place}.{name}").items()}
    if isinstance(value, list):
        return {key: text for i, part in enumerate(value) for key, text in texts(part, f"{place}[{i}]").items()}
    return {place: value}


def fields(text: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(text) if name is not None}


@pytest.mark.parametrize("language", languages.languages())
def test_each_language_says_the_same(language: str) -> None:
    own, english = texts(read_words(language)), texts(read_words("en"))
    assert own.keys() == english.keys()
    assert {place: fields(text) for place, text in own.items()} == {
        place: fields(text) for place, text in english.items()
    }
    assert set(read_words(language)["consent"]["measures"]) == set(MEASURES)


def test_an_unknown_language_is_english_and_a_known_one_needs_no_region() -> None:
    assert languages.languages() == ["de", "en"]
    assert read_words("fr") == read_words("../en") == read_words("en") != read_words("de-AT") == read_words("de")


def test_a_guess_and_a_bound_are_rounded_up() -> None:
    for units in range(0, 8 * UNIT, 99_991):
        assert 0 <= odds_above(units) / 2**64 / math.exp(units / UNIT) - 1 < 1e-12
    assert [percent(units) for units in (1, UNIT // 2, UNIT, 2 * UNIT, 9 * UNIT)] == [51, 63, 74, 89, None]
    shown = [figure(math.ceil(value * UNIT), GERMAN) for value in (1.0, 0.99999, 48.0001, 12345.0, 0.05)]
    assert shown == ["1", "1", "48,01", "12.350", "0,05001"]
    assert figure(None, ENGLISH) == "no limit"
    # A cap is a ratio of probabilities: with 3/1, a guess of one half becomes exactly 75 %.
    assert "at most 75 % sure" in rows(policy(cap=[3, 1]))["reading"]
    assert "at most 76 % sure" in rows(policy(cap=[3_000_001, 1_000_000]))["reading"]
    assert "practically sure" in rows(policy(cap=[199, 1]))["reading"]


def test_numbers_spans_and_dates_are_written_as_in_the_language() -> None:
    assert (count(19827, ENGLISH), count(1234567, GERMAN), count(7, GERMAN)) == ("19,827", "1.234.567", "7")
    assert (span(1800, ENGLISH), span(86400, ENGLISH), span(7 * 86400, GERMAN)) == ("30 minutes", "1 day", "7 Tagen")
    for second in range(0, 2**32, 37 * 86400 + 7):
        day = datetime.datetime.fromtimestamp(second, datetime.UTC)
        assert date(second, ENGLISH) == f"{day.day} {ENGLISH['months'][day.month - 1]} {day.year}"
    assert date(1_830_000_000 - 1, GERMAN) == "28. Dezember 2027"


def test_a_person_reads_what_the_policy_allows() -> None:
    found = policy(lifetime=110 * UNIT, until=1_830_000_000)
    said = rows(found)
    assert said["measured"] == "energy in Wh: the sum in a period of 30 minutes or longer"
    assert said["often"] == "at most 49 reports in any 24 hours"
    assert "28 December 2027" in said["until"]
    assert "74 %" in said["reading"]
    assert "at most 49 reports" in said["day"]
    assert "110 reports at full strength" in said["life"]
    assert "for one number: 1; for any 24 hours: 49; for life: 110." in consent(found, ENGLISH)["expert"]
    german = rows(found, "de")
    assert german["measured"] == "Energie in Wh: die Summe in einem Zeitraum von 30 Minuten oder länger"
    assert "in voller Stärke" in german["life"]


def test_what_is_not_limited_is_said() -> None:
    found = policy(lifetime=0, until=0, unit="")
    said = rows(found)
    assert "no end" in said["until"]
    assert "no limit for the device" in said["life"]
    assert "a unit that is not fixed" in said["measured"]
    assert "“energy”" in said["measured"]
    assert consent(found, ENGLISH)["expert"].count("no limit") == 1
    per_report = policy(stream={"rho": 10, "period_seconds": 864000, "per_report": True})
    assert "There is no limit for 24 hours" in rows(per_report)["day"]


def test_a_life_with_fewer_reports_than_a_day_is_said_once() -> None:
    said = rows(policy(slot_seconds=124, reports_per_period=697, lifetime=110 * UNIT))
    assert said["often"] == "at most 110 reports at full strength in all; all of them may be sent within 24 hours"
    assert not re.search(r"69\d", " ".join(said.values()))


def test_a_rest_of_a_day_and_a_stream_protect_24_hours_as_a_whole() -> None:
    resting = rows(policy(rest_seconds=86400, lifetime=110 * UNIT))
    assert resting["often"] == "at most one report in any 24 hours"
    assert "what happened within any 24 hours" in resting["day"]
    stream = policy(**STREAM)
    said = rows(stream)
    assert "reading" not in said
    assert "1 in 1,048,576" in said["day"]
    rho = 20000 / UNIT
    epsilon = rho + 2 * math.sqrt(rho * 20 * math.log(2))
    assert Bounds(stream).life is not None
    assert 1 <= (Bounds(stream).life or 0) / UNIT / epsilon < 1.001, "ln 2 is taken as 25/36"
    # If the policy also allows reports of single numbers beside the stream, their cost is added.
    both = policy(lifetime=10 * UNIT, stream=STREAM["stream"])
    assert (Bounds(both).life or 0) == 10 * UNIT + (Bounds(stream).life or 0)


def test_everything_that_is_agreed_to_changes_the_fingerprint() -> None:
    base = policy(signers=["ab" * 32], handover=True)
    known = {fingerprint(base, "asks", "purpose"), fingerprint(base, "ask", "spurpose"), fingerprint(base, "asks", "p")}
    changes: list[dict[str, Any]] = [
        {"sensor": "gas"}, {"measures": ["mean"]}, {"unit": "kWh"}, {"cap": [3, 1]}, {"slot_seconds": 1801},
        {"theta": [1, 999]}, {"duration_seconds": 99}, {"until": 5}, {"period_seconds": 86401},
        {"reports_per_period": 47}, {"rest_seconds": 9}, {"lifetime": 9}, {"stream": STREAM["stream"]},
        {"stream": STREAM["stream"] | {"rho": 9}}, {"stream": STREAM["stream"] | {"lifetime": 9}},
    ]  # fmt: skip
    known |= {fingerprint(policy(**change), "asks", "purpose") for change in changes}
    assert len(known) == 3 + len(changes)
    # A phone sets these values in its own copy of the policy, so they are not part of the fingerprint.
    same = policy(boots_per_day=1000, write_seconds=1, rest_by="clock")
    assert fingerprint(same, "asks", "purpose") == fingerprint(policy(), "asks", "purpose")
