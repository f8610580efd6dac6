"""Sentences of an offer, for people who have never heard of ε: what is measured, and the guarantee as odds.

ε becomes a guess: somebody who holds two answers for equally likely is at most e^ε/(1 + e^ε) sure of one of them after
seeing what ε protects.
"""

import math
from dataclasses import dataclass

# A guess that can become this sure is not protected in any useful sense, and the sentence says so.
_SURE = 0.995
_PARTS = (("day", 86400), ("hour", 3600), ("minute", 60), ("second", 1))


@dataclass(frozen=True)
class OfferWords:
    """The words of one language. Templates have their fields in braces."""

    units: dict[str, tuple[str, str]]
    measures: dict[str, str]
    nothing_hidden: str
    reading: str
    day_window: str
    day: str
    life: str
    endless: str
    stream_day: str
    stream_life: str
    chance: str


ENGLISH = OfferWords(
    units={"day": ("day", "days"), "hour": ("hour", "hours"), "minute": ("minute", "minutes"),
           "second": ("second", "seconds")},
    measures={
        "sum": "the sum of what {sensor} measures, in {unit}, over {span}",
        "mean": "the mean of what {sensor} measures, in {unit}, over {span}",
        "last": "what {sensor} shows, in {unit}, at the end of {span}",
        "max": "the largest value that {sensor} shows, in {unit}, within {span}",
        "duration": "how long {sensor} was active, in {unit}, within {span}",
        "counter": "how much the counter {sensor} advances, in {unit}, over {span}",
    },
    nothing_hidden="can become practically sure",
    reading="The device changes every number at random before it sends it. Somebody who hesitates between two values of"
    " one number, fifty to fifty, is at most {sure} sure of one of them after seeing what the device sent for it.",
    day_window="Somebody who knows everything else about you, and guesses fifty to fifty what happened within any 24"
    " hours, is at most {sure} sure after seeing everything that the device ever sends.",
    day="In any 24 hours the device sends at most {reports} reports. Somebody who collects all of them, and guesses"
    " fifty to fifty about something that shows in every one of them, {outcome}.",
    life="In its whole life the device sends at most {reports} reports and then stops for good. Somebody who collects"
    " all of them, and guesses fifty to fifty about a habit that shows in every one of them, {outcome}.",
    endless="The device has no limit for its whole life: somebody who collects its reports for long enough can become"
    " practically sure of a habit that shows in all of them.",
    stream_day="Somebody who guesses fifty to fifty about all that happens in any 24 hours, and sees everything that"
    " the device sends, {outcome}{chance}.",
    stream_life="Somebody who guesses fifty to fifty about all that the device ever measures, and sees everything that"
    " it ever sends, {outcome}{chance}.",
    chance=", except with a chance of 1 in {odds}",
)  # fmt: skip
LANGUAGES = {"en": ENGLISH}
_OUTCOME = {"en": "is at most {sure} sure afterwards"}


def sure(epsilon: float) -> float:
    """Return how sure a guess of one half can become: e^ε/(1 + e^ε)."""
    return 1 / (1 + math.exp(-epsilon))


def percent(epsilon: float) -> str:
    """Return how sure a guess of one half can become, rounded up to a whole per cent."""
    # A tiny amount is subtracted, because the float may exceed a whole number of per cent by an error of rounding.
    return f"{math.ceil(100 * sure(epsilon) - 1e-9)} %"


def span(language: str, seconds: int) -> str:
    """Return a duration in words: "30 minutes"."""
    unit, size = next((unit, size) for unit, size in _PARTS if seconds % size == 0)
    one, several = LANGUAGES[language].units[unit]
    count = seconds // size
    return f"{count} {one if count == 1 else several}"


def outcome(language: str, epsilon: float) -> str:
    """Return the end of a sentence: how sure somebody can become."""
    if sure(epsilon) >= _SURE:
        return LANGUAGES[language].nothing_hidden
    return _OUTCOME[language].format(sure=percent(epsilon))
