"""numpy gives the same symbols as the scalar code, bit for bit and for any chunks."""

import numpy as np
import pytest

from support.designed import DESIGNED
from support.refusal import refused
from undertone_shared.entropy import Entropy, EntropyError
from undertone_shared.errors import Invalid
from undertone_shared.mechanism import WindowMechanism
from undertone_shared.table import TableMechanism
from undertone_simulator.fast import vectorised
from undertone_simulator.fast.draws import GivenWords
from undertone_simulator.fast.vectorised import histogram, histograms, symbols
from undertone_simulator.seeded import Seeded, positions

THETA = 613


def random_table(bits=20, levels=9, cells=17):
    rng = np.random.default_rng(3)
    rows = []
    for weights in rng.integers(1000, 5000, (levels, cells)):
        row = weights * (1 << bits) // weights.sum()
        row[0] += (1 << bits) - row.sum()
        rows.append(b"".join(int(weight).to_bytes(3, "big") for weight in row))
    return TableMechanism(bits, rows, (-40, 0, 7, 100, 900, 1000, 2000, 3000, 4000), 2)


MECHANISMS = [pytest.param(m, id=f"{name}-{epsilon}") for name, epsilon, m in DESIGNED]
MECHANISMS.append(pytest.param(random_table(), id="table"))


def scalar(mechanism, readings, theta, seeded, slot, first=0):
    drawn = []
    for i, x in enumerate(readings):
        source = seeded.source(first + i)
        source.seek(slot)
        entropy = Entropy(source)
        entropy.refill()
        part = mechanism.choose(entropy)
        drawn.append(part.draw(part.level(int(x), theta, entropy), entropy))
    return np.array(drawn)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_equal_to_the_scalar_draw(mechanism):
    seeded = Seeded(77)
    readings = np.random.default_rng(5).integers(0, THETA + 1, 500)
    readings[:2] = 0, THETA
    expected = scalar(mechanism, readings, THETA, seeded, 5, first=40)
    words = seeded.words(5, range(40, 540))
    assert np.array_equal(symbols(mechanism, readings, THETA, words), expected)
    counts = histogram(mechanism, readings, THETA, words)
    assert np.array_equal(counts, np.bincount(expected, minlength=mechanism.symbols))


@pytest.mark.parametrize("theta", [1, 2, 3, 1 << 20, (1 << 20) + 1, ((1 << 30) - 1) // 256])
def test_extreme_thetas(theta):
    mechanism = DESIGNED[[f"{n}{e}" for n, e, _ in DESIGNED].index("hybrid4")][2]
    readings = np.random.default_rng(5).integers(0, theta + 1, 300)
    expected = scalar(mechanism, readings, theta, Seeded(1), 9)
    assert np.array_equal(symbols(mechanism, readings, theta, Seeded(1).words(9, range(300))), expected)


def test_chunks_blocks_and_order_do_not_matter(monkeypatch):
    seeded = Seeded(3)
    mechanism = DESIGNED[[f"{n}{e}" for n, e, _ in DESIGNED].index("hybrid1")][2]
    n = 5000
    readings = np.random.default_rng(6).integers(0, THETA + 1, n)
    whole = symbols(mechanism, readings, THETA, seeded.words(1, range(n)))
    counts = histogram(mechanism, readings, THETA, seeded.words(1, range(n)))
    parts = [
        symbols(mechanism, readings[i : i + 777], THETA, seeded.words(1, range(n)[i : i + 777]))
        for i in range(0, n, 777)
    ]
    assert np.array_equal(np.concatenate(parts), whole)
    order = np.random.default_rng(7).permutation(n)
    assert np.array_equal(symbols(mechanism, readings[order], THETA, seeded.words(1, order)), whole[order])
    monkeypatch.setattr(vectorised, "BLOCK", 512)
    monkeypatch.setattr(vectorised, "_POOL", 1100)
    assert np.array_equal(symbols(mechanism, readings, THETA, seeded.words(1, range(n))), whole)
    assert np.array_equal(histogram(mechanism, readings, THETA, seeded.words(1, range(n))), counts)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_slots_drawn_together_give_each_slots_own_histogram(mechanism):
    seeded, slots, n = Seeded(9), [4, 5, 11], 700
    rows = np.random.default_rng(2).integers(0, len(slots), n)
    readings = np.random.default_rng(8).integers(0, THETA + 1, n)
    words = seeded.words_of_slots(slots, rows, positions(range(n)))
    counts = histograms(mechanism, readings, THETA, words, rows, len(slots))
    for row, slot in enumerate(slots):
        own = np.flatnonzero(rows == row)
        assert np.array_equal(counts[row], histogram(mechanism, readings[own], THETA, seeded.words(slot, own)))


def test_square_wave_takes_any_reading():
    mechanism = WindowMechanism(7, 2, 3, 1, 2, (-5, 0, 10, 20))
    readings = np.array([-(10**9), -5, -1, 0, 9, 10, 19, 20, 10**9])
    expected = scalar(mechanism, readings, 0, Seeded(4), 0)
    assert np.array_equal(symbols(mechanism, readings, 0, Seeded(4).words(0, range(9))), expected)


def test_given_words_run_out_like_the_buffer():
    mechanism = WindowMechanism(3, 2, 1, 1, 1)
    rejected = np.full((2, 3), 0xFFFFFFFF, dtype=np.uint32)
    with pytest.raises(EntropyError, match="used up"):
        symbols(mechanism, np.array([0, 1]), 1, GivenWords(rejected))
    enough = np.array([[0, 0xFFFFFFFF, 4]], dtype=np.uint32)
    assert symbols(mechanism, np.array([0]), 1, GivenWords(enough)) == [1]


def test_nobody():
    assert len(symbols(DESIGNED[0][2], np.array([], dtype=int), 5, Seeded(1).words(0, []))) == 0


@pytest.mark.parametrize(
    ("readings", "theta", "sentence"),
    [
        ([0, 6], 5, "the truncated readings lie in 0 to 6, expected 0 to theta = 5"),
        ([-1, 0], 5, "the truncated readings lie in -1 to 0"),
        ([0, 0], 0, "theta is 0, expected 1 or more"),
        ([0, 0], 1 << 30, "theta is 1073741824"),
        ([0], 5, "there are 1 readings, expected one for each of 2 devices"),
    ],
)
def test_bad_input(readings, theta, sentence):
    with pytest.raises(Invalid, match=sentence):
        symbols(DESIGNED[0][2], np.array(readings), theta, Seeded(1).words(0, range(2)))


def test_a_table_must_cover():
    # The table's reach is 1,000, so theta · 1,000 has to stay below 2^30.
    with refused("theta", 1073742, 1):
        symbols(random_table(), np.array([0]), 1_073_742, Seeded(1).words(0, [0]))


@pytest.mark.parametrize("theta", [1, 2, 999, 1000, 1001, 1_073_741])
def test_a_table_for_any_range(theta):
    readings = np.random.default_rng(5).integers(0, theta + 1, 300)
    readings[:2] = 0, theta
    expected = scalar(random_table(), readings, theta, Seeded(8), 3)
    assert np.array_equal(symbols(random_table(), readings, theta, Seeded(8).words(3, range(300))), expected)
