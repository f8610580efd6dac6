"""What a person reads before and after agreeing, computed from the policy that their device stores.

The sentences that explain a policy to a person come from here. A server's offer adds who asks and why, and nothing
else. Numbers are integers, and each is rounded to the side on which it stays a bound. Sentences come from one file for
each language, see `words`.

The module runs on the phone's MicroPython, too. A board shows nothing and never loads it.
"""

import hashlib
import json

from undertone_device.core.spent import most_reports
from undertone_device.core.units import UNIT, epsilon_units
from undertone_shared.checks import check_text
from undertone_shared.errors import Invalid
from undertone_shared.policy import parse_policy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from undertone_shared.policy import Policy

DAY = 86400
# The largest epsilon that is advised where people join. Above it, a guess of probability 1/2 can become more than 88 %
# sure.
LARGEST_FOR_PEOPLE = 2
# Streams are counted in rho (zCDP); epsilon = rho + 2 sqrt(rho ln(1/delta)) is shown at delta = 2^-20.
DELTA_BITS = 20
# A guess with these odds, 199 to 1 or 99.5 %, is not protected in any useful sense, and the sentence says so.
_SURE = 199
_LARGEST_UNITS = 8 * UNIT
_ONE = 1 << 64
_DIGITS = 1000
_FINGERPRINT_BYTES = 16
_LONGEST_WORDS = 1000
# Unit of the readings -> quantity, in the words of Home Assistant's device classes, so that a home can suggest a meter.
QUANTITIES = {
    "energy": ("Wh", "kWh", "MWh", "J", "kJ", "MJ", "GJ"),
    "power": ("mW", "W", "kW", "MW"),
    "temperature": ("°C", "°F", "K", "dC"),
    "voltage": ("mV", "V"),
    "current": ("mA", "A"),
    "frequency": ("Hz", "kHz", "MHz"),
    "sound_pressure": ("dB", "dBA"),
    "volume": ("m³", "L", "l", "mL"),
    "duration": ("s", "min", "h"),
}
_PARTS = (("day", 86400), ("hour", 3600), ("minute", 60), ("second", 1))


class Bounds:
    """The bounds of a policy, for any campaigns that it allows.

    ``reading``, ``day``, ``life``: units of 2^-20 of epsilon for one number, for any 24 hours, and for the whole life;
    None if nothing bounds it. ``reading`` is None, too, if the policy allows no reports of single numbers. ``reports``:
    most reports that touch any 24 hours. ``strongest``: how many reports of single numbers at the full ``cap`` may be
    drawn in the whole life, None without a limit. At a smaller epsilon there may be more reports, which together reveal
    no more. ``delta``: True if ``day`` and ``life`` hold except with a chance of 2^-20, because streams are allowed.
    """

    def __init__(self, policy: "Policy"):
        units = epsilon_units(policy.cap[0], policy.cap[1])
        self.reports = most_reports(policy, DAY)
        self.cap = policy.cap
        self.reading: int | None = units or None
        self.strongest: int | None = policy.lifetime // units if units and policy.lifetime else None
        self.day: int | None = self.reports * units
        self.life: int | None = policy.lifetime if policy.lifetime or not units else None
        if policy.lifetime:
            self.day = min(self.reports * units, policy.lifetime)
        self.delta = bool(policy.stream)
        # True if the whole life has fewer reports than 24 hours could have.
        self.few = not self.delta and self.strongest is not None and self.strongest < self.reports
        stream = policy.stream
        if stream:
            # 24 hours touch one calendar period more than fit into them.
            rho = 0 if stream.per_report else (-(-DAY // stream.period_seconds) + 1) * stream.rho
            if stream.lifetime:
                rho = min(rho, stream.lifetime) if rho else stream.lifetime
            self.day = _sum(self.day, _of_rho(rho))
            self.life = _sum(self.life, _of_rho(stream.lifetime))


def _sum(a: "int | None", b: "int | None") -> "int | None":
    return None if a is None or b is None else a + b


def _of_rho(units: int) -> "int | None":
    """Return at least 2^20 epsilon for rho = units/2^20 at delta = 2^-k; None for 0, which stands for no limit.

    epsilon = rho + 2 sqrt(rho k ln 2) (Bun, Steinke, TCC 2016), so (2^20 epsilon - units)^2 = 4 units 2^20 k ln 2. Here
    k is ``DELTA_BITS``, and ln 2 < 25/36.
    """
    if not units:
        return None
    return units + _root_above(_up(4 * units * UNIT * DELTA_BITS * 25, 36))


def _root_above(n: int) -> int:
    """Return the least whole number whose square is at least n."""
    low, high = 0, 1
    while high * high < n:
        high *= 2
    while low < high:
        middle = (low + high) // 2
        if middle * middle < n:
            low = middle + 1
        else:
            high = middle
    return low


def _up(numerator: int, denominator: int) -> int:
    return -(-numerator // denominator)


def odds_above(units: int) -> int:
    """Return at least 2^64 e^epsilon for epsilon = units/2^20 <= 8, by the series, each product rounded up."""
    term = total = _ONE
    n = 0
    while term > 1:
        n += 1
        term = _up(term * units, n * UNIT)
        total += term
    # Here n >= 2 epsilon, because epsilon^n / n! is above 2^-64 for every smaller n. So each further term is at most
    # half of the one before, and all of them together are at most the last one.
    return total + 2


def percent(units: int) -> "int | None":
    """Return the highest probability that a guess of one half can reach: e^epsilon/(1 + e^epsilon), in per cent.

    It is rounded up. None if the guess can become practically sure.
    """
    if units > _LARGEST_UNITS:
        return None
    odds = odds_above(units)
    return None if odds >= _SURE * _ONE else _up(100 * odds, odds + _ONE)


def figure(units: "int | None", words: "dict[str, Any]") -> str:
    """Return epsilon with at most four significant digits and six decimals, rounded up.

    For None, return the words for "no limit".
    """
    if units is None:
        return str(words["no_limit"])
    scale, up = 0, _up(units, UNIT)
    while units and scale < 6 and up < _DIGITS:
        scale += 1
        up = _up(units * 10**scale, UNIT)
    step = 1
    while up >= 10 * _DIGITS * step:
        step *= 10
    up = _up(up, step) * step
    text = "%d" % (up // 10**scale)
    part = ("%0*d" % (scale, up % 10**scale)) if scale else ""
    while part[-1:] == "0":
        part = part[:-1]
    return count(int(text), words) + (words["point"] + part if part else "")


def count(number: int, words: "dict[str, Any]") -> str:
    """Return a whole number with its thousands separated."""
    text = "%d" % number
    parts: list[str] = []
    while len(text) > 3:
        parts.insert(0, text[-3:])
        text = text[:-3]
    return str(words["thousands"]).join([text] + parts)


def span(seconds: int, words: "dict[str, Any]") -> str:
    """Return a duration in words: "30 minutes"."""
    for unit, size in _PARTS:
        if seconds % size == 0:
            one, several = words["units"][unit]
            number = seconds // size
            return "%s %s" % (count(number, words), one if number == 1 else several)
    raise AssertionError


def date(seconds: int, words: "dict[str, Any]") -> str:
    """Return the day (UTC) of a Unix second, in the Gregorian calendar."""
    # Days from 0000-03-01, in cycles of 400, 100, 4 years and one year.
    days = seconds // DAY + 719468
    cycle, days = days // 146097, days % 146097
    year = (days - days // 1460 + days // 36524 - days // 146096) // 365
    days -= 365 * year + year // 4 - year // 100
    month = (5 * days + 2) // 153
    day = days - (153 * month + 2) // 5 + 1
    month = month + 3 if month < 10 else month - 9
    year += 400 * cycle + (month <= 2)
    return str(words["date"]).format(day=day, month=words["months"][month - 1], year=year)


def quantity(unit: str) -> "str | None":
    """Return the quantity that a unit measures, None if it is not known."""
    for name in QUANTITIES:
        if unit in QUANTITIES[name]:
            return name
    return None


def what(policy: "Policy", words: "dict[str, Any]") -> str:
    """Return what is measured, in words."""
    known = quantity(policy.unit)
    name = words["quantities"][known] if known else words["quoted"].format(name=policy.sensor)
    unit = words["in_unit"].format(unit=policy.unit) if policy.unit else words["any_unit"]
    ways = words["or"].join([words["measures"][measure] for measure in policy.measures])
    return str(words["what"]).format(name=name, unit=unit, ways=ways, span=span(policy.slot_seconds, words))


def consent(policy: "Policy", words: "dict[str, Any]") -> "dict[str, Any]":
    """Return what a person agrees to with this policy, in a language.

    ``rows``: (key, title, text) of each thing to know, in the order of reading. ``what``: what is measured. ``expert``:
    the same bounds as epsilon. ``measures``: what a program needs to know of the readings.
    """
    limits = Bounds(policy)
    chance = words["chance"].format(odds=count(1 << DELTA_BITS, words)) if limits.delta else ""
    key = "often_few" if limits.few else ("often_one" if limits.reports == 1 else "often")
    reports = limits.strongest if limits.few else limits.reports
    often = words[key].format(reports=count(reports or 0, words))
    until = words["until"].format(date=date(policy.until - 1, words)) if policy.until else words["no_end"]
    texts = [("measured", what(policy, words)), ("often", often), ("until", until)]
    if limits.reading is not None:
        texts.append(("reading", words["reading"].format(outcome=_outcome(_of_cap(limits), words))))
    texts.append(("day", _day(limits, words, chance)))
    texts.append(("life", _life(limits, words, chance)))
    texts.append(("next", words["next"] if policy.agreed else words["no_next"]))
    return {
        "rows": [[key, words["titles"][key], text] for key, text in texts],
        "what": what(policy, words),
        "expert": words["expert"].format(
            reading=words["none"] if limits.reading is None else figure(limits.reading, words),
            day=figure(limits.day, words),
            life=figure(limits.life, words),
            delta=words["delta"].format(bits=DELTA_BITS) if limits.delta else "",
        ),
        "measures": {
            "sensor": policy.sensor,
            "measure": policy.measures[0],
            "unit": policy.unit,
            "quantity": quantity(policy.unit),
            "slot_seconds": policy.slot_seconds,
        },
    }


def _of_cap(limits: Bounds) -> "int | None":
    """Return `percent` for one number, exactly.

    With the cap p/q, a guess of one half can become right with probability p/(p + q).
    """
    p, q = limits.cap
    return None if p >= _SURE * q else _up(100 * p, p + q)


def _day(limits: Bounds, words: "dict[str, Any]", chance: str) -> str:
    if limits.day is None:
        return str(words["endless_day"])
    outcome = _outcome(percent(limits.day), words)
    if limits.few:
        return str(words["day_few"])
    if limits.reports == 1 or limits.delta:
        return str(words["day_window"]).format(outcome=outcome, chance=chance)
    return str(words["day"]).format(reports=count(limits.reports, words), outcome=outcome)


def _life(limits: Bounds, words: "dict[str, Any]", chance: str) -> str:
    if limits.life is None:
        return str(words["endless"])
    outcome = _outcome(percent(limits.life), words)
    if limits.strongest is None or limits.delta:
        return str(words["life_stream"]).format(outcome=outcome, chance=chance)
    key = "life_one" if limits.strongest == 1 else "life"
    return str(words[key]).format(reports=count(limits.strongest, words), outcome=outcome)


def _outcome(sure: "int | None", words: "dict[str, Any]") -> str:
    return str(words["sure"] if sure is None else words["limited"].format(percent=sure))


def offered(policy: "Any", asks: "Any", purpose: "Any") -> "Policy":
    """Return the policy of an offer, a JSON value, if a person can be asked about it. Raises Invalid.

    ``asks``, ``purpose``: the server's own words. If the policy has ``agreed``, it must be the `fingerprint` of the
    policy and these words.
    """
    if not isinstance(policy, dict):
        raise Invalid("policy is %r, expected an object" % (policy,))
    parsed = parse_policy(json.dumps(policy).encode())
    if len(parsed.measures) != 1:
        raise Invalid("measures is %s, expected one: a person agrees to one measure" % (", ".join(parsed.measures),))
    check_text("operator", asks, _LONGEST_WORDS)
    check_text("about", "" if purpose is None else purpose, _LONGEST_WORDS)
    if parsed.agreed and parsed.agreed != fingerprint(parsed, asks, purpose or ""):
        raise Invalid("agreed is %s, which is not the fingerprint of what is offered" % parsed.agreed)
    return parsed


def same_policy(shown: "Any", received: str) -> None:
    """Check that the received policy (JSON text) equals the ``shown`` JSON value in every field. Raises Invalid."""
    try:
        value = json.loads(received)
    except (ValueError, RuntimeError):
        raise Invalid("the policy is not JSON")
    # Texts are compared, not values, because `1 == True` holds. The order of fields does not matter.
    if not isinstance(value, dict) or _lines(value) != _lines(shown):
        raise Invalid("the policy is not the one that was shown, so it is not stored")


def _lines(value: "dict[str, Any]") -> "list[str]":
    return sorted(["%s %s" % (name, _text(value[name])) for name in value])


def _text(value: "Any") -> str:
    return "{%s}" % ",".join(_lines(value)) if isinstance(value, dict) else json.dumps(value)


def fingerprint(policy: "Policy", asks: str, purpose: str) -> str:
    """Return 32 hexadecimal digits for what a household agrees to: who asks, what for, and the policy's limits.

    They are the first 16 bytes of the sha256 of these texts, each after its length in bytes and a colon.
    """
    fields = [
        "undertone agreement 1",
        asks,
        purpose,
        policy.sensor,
        ",".join(policy.measures),
        policy.unit,
        "%d/%d" % policy.cap,
        "%d..%d" % policy.theta,
    ]
    numbers = (
        policy.slot_seconds,
        policy.duration_seconds,
        policy.period_seconds,
        policy.reports_per_period,
        policy.rest_seconds,
        policy.lifetime,
        policy.until,
    )
    fields += ["%d" % number for number in numbers]
    stream = policy.stream
    if stream:
        fields.append(
            "%d %d %d %d %s %s"
            % (
                stream.rho,
                stream.period_seconds,
                stream.lifetime,
                stream.dimension,
                stream.per_report,
                ",".join(stream.laws),
            )
        )
    digest = hashlib.sha256()
    for field in fields:
        data = field.encode()
        digest.update(b"%d:" % len(data))
        digest.update(data)
    return "".join(["%02x" % byte for byte in digest.digest()[:_FINGERPRINT_BYTES]])
