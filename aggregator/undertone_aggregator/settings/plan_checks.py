"""Checks for the options of a campaign, as `undertone_aggregator.settings.options.option` takes them.

Each check is called with the option's name and value. It returns the value in the form in which it is used, or raises
Invalid. `coprime_near` is no check; it computes strides.
"""

import re
import string
from fractions import Fraction
from itertools import count
from math import gcd

from undertone_aggregator.base.durations import YEAR_SECONDS, seconds_of
from undertone_aggregator.base.zones import weekend_of
from undertone_aggregator.base.zones import zone as _zone_named
from undertone_aggregator.design import Budget
from undertone_aggregator.design.reach import LARGEST_REACH, LEAST_REACH
from undertone_aggregator.estimate.spreadsheets import FORMULA
from undertone_aggregator.settings.options import integer, text
from undertone_shared.campaign import LONGEST_UNIT
from undertone_shared.checks import check_text
from undertone_shared.errors import Invalid
from undertone_shared.schedule import SEED_BYTES
from undertone_shared.topics import check_name

LONGEST_TITLE = 80
_U32 = 0xFFFFFFFF
_RANGES = re.compile(r"ranges:([0-9]{1,9})")
# The largest R of the query ranges:R, in slots.
_LONGEST_RANGE = 1 << 20


def name(name: str, value: object) -> str:
    return check_name(name, text(name, value))


def title(name: str, value: object) -> str:
    """Check a campaign's title, which the page shows: one printable line. Raises Invalid."""
    words = text(name, value)
    if len(words) > LONGEST_TITLE or not words.isprintable() or words != words.strip():
        raise Invalid(
            f"{name} is {value!r}, expected one line of at most {LONGEST_TITLE} printable characters, without spaces at"
            " its ends"
        )
    return words


def zone(name: str, value: object) -> str:
    return _zone_named(name, value).key


def weekend(name: str, value: object) -> str:
    weekend_of(name, value)
    return str(value)


def unit(name: str, value: object) -> str:
    checked = check_text(name, text(name, value), LONGEST_UNIT)
    if checked.startswith(FORMULA):
        raise Invalid(f"{name} is {value!r}, expected a unit that a spreadsheet cannot take for a formula")
    if '"' in checked or "\\" in checked:
        raise Invalid(
            f"{name} is {value!r}, expected a unit without quotation marks and backslashes: devices refuse"
            " campaigns with escaped text"
        )
    return checked


def epsilon(name: str, value: object) -> Fraction:
    try:
        return Budget.parse(value).epsilon  # type: ignore[arg-type]
    except Invalid as wrong:
        raise Invalid(str(wrong).replace("epsilon", name, 1)) from None


def start(name: str, value: object) -> int | None:
    if value == "now":
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _U32:
        raise Invalid(f'{name} is {value!r}, expected "now" or a Unix second from 0 to {_U32}')
    return value


def reach(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not LEAST_REACH <= value <= LARGEST_REACH:
        raise Invalid(f"{name} is {value!r}, expected {LEAST_REACH} to {LARGEST_REACH:g}")
    return float(value)


def share(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
        raise Invalid(f"{name} is {value!r}, expected a number from 0 to 1")
    return float(value)


def rounds(name: str, value: object) -> tuple[int, ...]:
    check = integer(1, 1 << 20)
    if not isinstance(value, (list, tuple)) or not 1 <= len(value) <= 16:
        raise Invalid(f"{name} is {value!r}, expected a list of 1 to 16 numbers of slots")
    return tuple(check(f"{name}[{i}]", slots) for i, slots in enumerate(value))


def query(name: str, value: object) -> str:
    length = _RANGES.fullmatch(value) if isinstance(value, str) else None
    if value not in ("shown", "fleet") and not (length and 1 <= int(length[1]) <= _LONGEST_RANGE):
        raise Invalid(f"{name} is {value!r}, expected shown, fleet, or ranges:R with R from 1 to {_LONGEST_RANGE}")
    return str(value)


def seed(name: str, value: object) -> bytes:
    if isinstance(value, bytes) and len(value) == SEED_BYTES:
        return value
    if not isinstance(value, str) or len(value) != 2 * SEED_BYTES or not set(value) <= set(string.hexdigits):
        raise Invalid(f"{name} is {value!r}, expected {2 * SEED_BYTES} hexadecimal digits")
    return bytes.fromhex(value)


def window(name: str, value: object) -> int:
    return seconds_of(name, value, most=YEAR_SECONDS)


def coprime_near(target: float, least: int, *numbers: int) -> int:
    """Return the integer that is nearest to ``target``, at least ``least``, and coprime to each of ``numbers``."""
    fits = (n for n in count(least) if n >= target and all(gcd(n, number) == 1 for number in numbers))
    above = next(fits)
    below = next((n for n in range(above - 1, least - 1, -1) if all(gcd(n, k) == 1 for k in numbers)), above)
    return above if above - target < target - below else below


def delta(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 1:
        raise Invalid(f"{name} is {value!r}, expected a number above 0 and below 1")
    return float(value)


def noise_share(name: str, value: object) -> Fraction:
    if isinstance(value, bool) or not isinstance(value, (int, float, Fraction)) or not 0 <= value < 1:
        raise Invalid(f"{name} is {value!r}, expected a number from 0 to below 1")
    return Fraction(str(value))


def slew(name: str, value: object) -> Fraction:
    if isinstance(value, bool) or not isinstance(value, (int, float, Fraction)) or not 0 < value < Fraction(1, 2):
        raise Invalid(f"{name} is {value!r}, expected a number above 0 and below 1/2")
    return Fraction(str(value))
