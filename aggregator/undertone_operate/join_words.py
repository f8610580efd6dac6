"""Sentences of an offer, for people who have never heard of ε: what is measured, the guarantee as odds, refusals.

ε becomes a guess: somebody who holds two answers for equally likely is at most e^ε/(1 + e^ε) sure of one of them after
seeing what ε protects.
"""

import math
import re
from dataclasses import dataclass

# A guess that can become this sure is not protected in any useful sense, and the sentence says so.
_SURE = 0.995
_PARTS = (("day", 86400), ("hour", 3600), ("minute", 60), ("second", 1))
# An item of Accept-Language (RFC 9110, section 12.5.4): a language, and its weight if there is one.
_ITEM = re.compile(r"\s*([A-Za-z]{1,8})(?:-[A-Za-z0-9]{1,8})*\s*(?:;\s*[qQ]=([01](?:\.[0-9]{0,3})?))?\s*")
_LARGEST_HEADER = 1000


@dataclass(frozen=True)
class OfferWords:
    """The words of one language. Templates have their fields in braces.

    ``units``: singular and plural. ``measures``: by the campaign's measure. ``limited``, ``sure``: how sure somebody
    can become, for the field ``outcome``. ``chance``: what δ adds to that. ``refusals``: by reason.
    """

    thousands: str
    units: dict[str, tuple[str, str]]
    measures: dict[str, str]
    limited: str
    sure: str
    reading: str
    day_window: str
    day: str
    life: str
    endless: str
    stream_day: str
    stream_life: str
    chance: str
    refusals: dict[str, str]

    def count(self, number: int) -> str:
        """Return a whole number with its thousands separated."""
        return f"{number:,}".replace(",", self.thousands)

    def span(self, seconds: int) -> str:
        """Return a duration in words: "30 minutes"."""
        unit, size = next((unit, size) for unit, size in _PARTS if seconds % size == 0)
        one, several = self.units[unit]
        count = seconds // size
        return f"{count} {one if count == 1 else several}"

    def outcome(self, epsilon: float) -> str:
        """Return the end of a sentence: how sure somebody can become."""
        return self.sure if sure(epsilon) >= _SURE else self.limited.format(sure=percent(epsilon))


def sure(epsilon: float) -> float:
    """Return how sure a guess of one half can become: e^ε/(1 + e^ε)."""
    return 1 / (1 + math.exp(-epsilon))


def percent(epsilon: float) -> str:
    """Return how sure a guess of one half can become, rounded up to a whole per cent."""
    # A tiny amount is subtracted, because the float may exceed a whole number of per cent by an error of rounding.
    return f"{math.ceil(100 * sure(epsilon) - 1e-9)} %"


def language_of(header: str) -> str:
    """Return the language of `LANGUAGES` that an Accept-Language header prefers; English for any other header."""
    best, weight = DEFAULT, 0.0
    for item in header[:_LARGEST_HEADER].split(","):
        match = _ITEM.fullmatch(item)
        if match is not None and match[1].lower() in LANGUAGES:
            wanted = float(match[2] or 1)
            if wanted > weight:
                best, weight = match[1].lower(), wanted
    return best


DEFAULT = "en"
LANGUAGES = {
    DEFAULT: OfferWords(
        thousands=",",
        units={
            "day": ("day", "days"),
            "hour": ("hour", "hours"),
            "minute": ("minute", "minutes"),
            "second": ("second", "seconds"),
        },
        measures={
            "sum": "the sum of what {sensor} measures, in {unit}, over {span}",
            "mean": "the mean of what {sensor} measures, in {unit}, over {span}",
            "last": "what {sensor} shows, in {unit}, at the end of {span}",
            "max": "the largest value that {sensor} shows, in {unit}, within {span}",
            "duration": "how long {sensor} was active, in {unit}, within {span}",
            "counter": "how much the counter {sensor} advances, in {unit}, over {span}",
        },
        limited="is at most {sure} sure afterwards",
        sure="can become practically sure",
        reading="The device changes every number at random before it sends it. Somebody who hesitates between two"
        " values of one number, fifty to fifty, is at most {sure} sure of one of them after seeing what the device"
        " sent for it.",
        day_window="Somebody who knows everything else about you, and guesses fifty to fifty what happened within any"
        " 24 hours, is at most {sure} sure after seeing everything that the device ever sends.",
        day="In any 24 hours the device sends at most {reports} reports. Somebody who collects all of them, and"
        " guesses fifty to fifty about something that shows in every one of them, {outcome}.",
        life="In its whole life the device sends at most {reports} reports and then stops for good. Somebody who"
        " collects all of them, and guesses fifty to fifty about a habit that shows in every one of them, {outcome}.",
        endless="The device has no limit for its whole life: somebody who collects its reports for long enough can"
        " become practically sure of a habit that shows in all of them.",
        stream_day="Somebody who guesses fifty to fifty about all that happens in any 24 hours, and sees everything"
        " that the device sends, {outcome}{chance}.",
        stream_life="Somebody who guesses fifty to fifty about all that the device ever measures, and sees everything"
        " that it ever sends, {outcome}{chance}.",
        chance=", except with a chance of 1 in {odds}",
        refusals={
            "unknown": "this code is not known here: check it, or ask for another one",
            "used": "this code is used up: it lets one device join, and one has joined with it; ask for another one",
            "revoked": "this code, or the device that joined with it, was revoked: ask for another one",
            "expired": "this code has expired: ask for another one",
            "ended": "the campaign of this code has ended",
            "slow_down": "too many requests: try again later",
            "unavailable": "the server cannot answer now: try again later",
        },
    ),
    "de": OfferWords(
        thousands=".",
        units={
            "day": ("Tag", "Tage"),
            "hour": ("Stunde", "Stunden"),
            "minute": ("Minute", "Minuten"),
            "second": ("Sekunde", "Sekunden"),
        },
        measures={
            "sum": "die Summe dessen, was {sensor} über {span} misst, in {unit}",
            "mean": "der Mittelwert dessen, was {sensor} über {span} misst, in {unit}",
            "last": "der letzte Wert, den {sensor} über {span} zeigt, in {unit}",
            "max": "der größte Wert, den {sensor} über {span} zeigt, in {unit}",
            "duration": "wie lange {sensor} über {span} aktiv war, in {unit}",
            "counter": "um wie viel der Zähler {sensor} über {span} weiterzählt, in {unit}",
        },
        limited="ist danach höchstens zu {sure} sicher",
        sure="kann praktisch sicher werden",
        reading="Das Gerät verändert jede Zahl zufällig, bevor es sie sendet. Wer zwischen zwei Werten einer Zahl"
        " schwankt, fünfzig zu fünfzig, ist nach dem, was das Gerät für sie gesendet hat, höchstens zu {sure} sicher,"
        " welcher es war.",
        day_window="Wer alles andere über Sie weiß und fünfzig zu fünfzig rät, was innerhalb von 24 Stunden geschah,"
        " ist nach allem, was das Gerät jemals sendet, höchstens zu {sure} sicher.",
        day="In 24 Stunden sendet das Gerät höchstens {reports} Berichte. Wer sie alle sammelt und bei etwas, das sich"
        " in jedem davon zeigt, fünfzig zu fünfzig rät, {outcome}.",
        life="In seinem ganzen Leben sendet das Gerät höchstens {reports} Berichte und hört danach für immer auf. Wer"
        " sie alle sammelt und bei einer Gewohnheit, die sich in jedem davon zeigt, fünfzig zu fünfzig rät,"
        " {outcome}.",
        endless="Für sein ganzes Leben hat das Gerät keine Grenze: Wer seine Berichte lange genug sammelt, kann bei"
        " einer Gewohnheit, die sich in allen zeigt, praktisch sicher werden.",
        stream_day="Wer über alles, was in 24 Stunden geschieht, fünfzig zu fünfzig rät und alles sieht, was das Gerät"
        " sendet, {outcome}{chance}.",
        stream_life="Wer über alles, was das Gerät jemals misst, fünfzig zu fünfzig rät und alles sieht, was es jemals"
        " sendet, {outcome}{chance}.",
        chance=", außer mit einer Wahrscheinlichkeit von 1 zu {odds}",
        refusals={
            "unknown": "Diesen Code gibt es hier nicht. Prüfen Sie ihn, oder bitten Sie um einen neuen.",
            "used": "Dieser Code ist verbraucht: Er gilt für ein Gerät, und eines nimmt mit ihm schon teil. Bitten Sie"
            " um einen neuen.",
            "revoked": "Dieser Code, oder das Gerät, das mit ihm teilnahm, wurde gesperrt. Bitten Sie um einen neuen.",
            "expired": "Dieser Code ist abgelaufen. Bitten Sie um einen neuen.",
            "ended": "Die Erhebung, für die dieser Code galt, ist beendet.",
            "slow_down": "Das waren zu viele Anfragen. Versuchen Sie es später noch einmal.",
            "unavailable": "Der Server kann gerade nicht antworten. Versuchen Sie es später noch einmal.",
        },
    ),
}
