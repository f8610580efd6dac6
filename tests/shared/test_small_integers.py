"""Every intermediate result of ``choose``, ``level``, ``draw`` and ``below`` is a small int of a 32-bit MicroPython.

The same code runs with integers that fail outside [-2^30, 2^30): attributes, readings, words and bytes of tables.
"""

import operator

import pytest
from shipped import mechanisms
from small_mechanisms import SMALL

from undertone_shared.entropy import BUFFER_BYTES, Entropy
from undertone_shared.mechanism import Hybrid

LIMIT = 1 << 30


class Small(int):
    """An int whose results are checked; it counts the results."""

    results = 0

    def __new__(cls, value):
        assert -LIMIT <= value < LIMIT, value
        cls.results += 1
        return super().__new__(cls, value)


def _checked(name):
    plain = getattr(int, name)

    def method(self, other):
        result = plain(self, int(other))
        return result if result is NotImplemented else Small(result)

    return method


for _name in ("add", "sub", "mul", "floordiv", "mod", "lshift", "rshift", "and", "or", "xor"):
    for _method in (f"__{_name}__", f"__r{_name}__"):
        setattr(Small, _method, _checked(_method))


def instrument(value):
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int):
        return Small(value)
    if isinstance(value, (bytes, tuple, range)):
        return [instrument(item) for item in value]
    return value


def instrumented(mechanism):
    copy = object.__new__(type(mechanism))
    for name, value in vars(mechanism).items():
        part = isinstance(mechanism, Hybrid) and name in ("rounding", "piecewise")
        setattr(copy, name, instrumented(value) if part else instrument(value))
    return copy


def filled(words):
    """An entropy whose buffer has bytes that are checked: these words, little-endian, over and over."""
    entropy = Entropy(lambda n: bytes(range(n)))
    data = b"".join(word.to_bytes(4, "little") for word in words)
    entropy._buffer = [Small(byte) for byte in (data * BUFFER_BYTES)[:BUFFER_BYTES]]
    entropy._next = Small(0)
    return entropy


def test_the_instrument_notices():
    with pytest.raises(AssertionError):
        operator.mul(Small(1 << 20), 1 << 10)
    with pytest.raises(AssertionError):
        operator.lshift(255, Small(24))
    assert isinstance(3 + Small(4), Small)


@pytest.mark.parametrize(("name", "mechanism", "theta"), [*SMALL, *mechanisms()])
def test_draws_stay_small(name, mechanism, theta):
    mechanism = instrumented(mechanism)
    before = Small.results
    for x in {0, 1, theta // 3, theta - 1, theta}:
        # A word with all bits set is the largest, and is rejected unless n is a power of two. Then a small word
        # follows.
        for words in ([0xFFFFFFFF, 0], [0], [0xFFFFFFFF, 0x2AAAAAAA, 1], [0x3FFFFFFE, 0x12345678, 0x00FF00FF, 0]):
            entropy = filled(words)
            part = mechanism.choose(entropy)
            symbol = part.draw(part.level(Small(x), Small(theta), entropy), entropy)
            assert 0 <= symbol < mechanism.symbols
    assert Small.results > before + 100


def test_below_stays_small_for_every_bound():
    bounds = {n for bits in range(31) for n in ((1 << bits) - 1, 1 << bits, (1 << bits) + 1) if 1 <= n <= LIMIT - 1}
    for n in bounds:
        for words in ([0xFFFFFFFF, 0], [0x80000000, 0x7FFFFFFF, 0]):
            assert 0 <= filled(words).below(Small(n)) < n
