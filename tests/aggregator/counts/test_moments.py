"""The moments of streams are exact sums: each slot has one vector of them, and vectors can be added.

A vector also counts the pairs of slots in which a device reported on the same chain.
"""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from support.server import plan
from undertone_aggregator.campaign.stream_rounds import stream_rule
from undertone_aggregator.counts.chains import RECORD_BYTES, Chains, record
from undertone_aggregator.counts.moments import LAGS, Layout, layout_of
from undertone_aggregator.counts.partial import Counts, Key, Partial, pack_counts, unpack_counts
from undertone_aggregator.settings.config import StreamPlan
from undertone_shared.report import STREAM
from undertone_shared.stream import StreamRule

released = st.integers(-0x7FFFFFFF, 0x7FFFFFFF)
KEY = Key("load", b"abcdefgh", STREAM, "all", 7)


def sum_of_squares(layout: Layout, counts: Counts, coordinate: int) -> int:
    """ΣX² of one coordinate. X = u - B with B = 2^31, so that ΣX² = Σu² - 2BΣu + nB²."""
    row = 1 + 3 * layout.dimension
    biased, high, low = (sum(map(int, counts[66 + 3 * coordinate + part :: row])) for part in range(3))
    return (high << 32) + low - (biased << 32) + (int(counts[0]) << 62)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(released, released, st.integers(1, 300)), max_size=20), st.integers(0, 20))
def test_sums_are_exact_and_add_up(reports, cut):
    layout = Layout(2, 256)
    parts = []
    for some in (reports[:cut], reports[cut:]):
        partial = Partial()
        for x, y, index in some:
            partial.add_moments(KEY, layout.report((x, y), index), layout.cells)
        parts.append(partial)
    merged = parts[0].merge(parts[1])
    assert merged.reports == len(reports)
    if not reports:
        return
    counts = merged[KEY]
    assert np.array_equal(unpack_counts(pack_counts(counts)), counts)
    for k in (0, 1):
        values = [origins[k] for origins in reports]
        assert (counts[0], layout.sum_of(counts, k)) == (len(values), sum(values))
        assert sum_of_squares(layout, counts, k) == sum(x * x for x in values)
    ages = layout.ages_of(counts)
    assert ages.sum() == len(reports)
    assert ages[255] == sum(index >= 256 for *_, index in reports)


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_pairs_are_the_slots_of_one_chain_in_any_order(data):
    # One device has three chains. Some of its reports are lost, and the others come in any order.
    reports = []
    slot = 100
    for _ in range(3):
        length = data.draw(st.integers(1, 30))
        kept = data.draw(st.sets(st.integers(1, length)))
        reports += [(slot + i, slot) for i in kept]
        slot += length + data.draw(st.integers(0, 3))
    chains = Chains()
    pairs = sorted(
        pair for slot, origin in data.draw(st.permutations(reports)) for pair in chains.observe(5, slot, origin)
    )
    expected = sorted(
        (max(a, b), abs(a - b))
        for i, (a, origin) in enumerate(reports)
        for b, other in reports[:i]
        if origin == other and abs(a - b) <= LAGS
    )
    assert pairs == expected


def test_a_repeated_slot_makes_no_pair():
    chains = Chains()
    assert chains.observe(1, 10, 5) == []
    assert chains.observe(1, 11, 5) == [(11, 1)]
    assert chains.observe(1, 11, 5) == []
    assert chains.observe(2, 11, 5) == []


def test_state_comes_back_from_its_records_by_shard():
    first, second = 1 << 56, 2 << 56
    segments = [
        (False, record(key, slot, origin)) for slot, origin in ((10, 5), (12, 5), (13, 12)) for key in (first, second)
    ]
    chains = Chains()
    chains.load(segments, [1])
    again = Chains()
    again.load([(True, chains.snapshot())])
    assert len(again) == 1
    assert sorted(again.observe(first, 14, 5)) == [(14, 2), (14, 4)]
    assert again.observe(second, 14, 5) == []
    assert len(again.snapshot()) // RECORD_BYTES == 5


def test_old_chains_are_forgotten():
    chains = Chains()
    for origin in range(0, 5000, 100):
        for slot in range(origin + 1, origin + 5):
            chains.observe(9, slot, origin)
    assert len(chains.snapshot()) // RECORD_BYTES <= 12


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(released, st.integers(1, 300)), min_size=1, max_size=20))
def test_many_reports_at_once_are_what_they_are_one_by_one(reports):
    layout = Layout(1, 256)
    expected = np.zeros(layout.cells, dtype=np.int64)
    for x, index in reports:
        for cell, amount in layout.report((x,), index):
            expected[cell] += amount
    values, indices = (np.array(column, dtype=np.int64) for column in zip(*reports, strict=True))
    assert np.array_equal(layout.reports(values, indices), expected)


def test_a_layout_has_as_many_ages_as_reports_and_256_at_most():
    described = stream_rule(plan(epsilon=1), StreamPlan()).describe()
    for reports, ages in ((1, 1), (48, 48), (256, 256), (257, 256), (65535, 256)):
        layout = layout_of(StreamRule({**described, "reports": reports, "chains": 1, "renewal": 0}))
        assert (layout.ages, layout.cells) == (ages, 1 + 64 + ages * 4)


def test_what_a_report_adds_stands_where_the_module_says() -> None:
    """A vector begins with 65 cells, whatever the rule.

    Then, for each age, come the number of reports and, for each coordinate, Σu and the sums of the high and the low
    32 bits of u².
    """
    layout = Layout(2, 3)
    assert layout.cells == 65 + 3 * 7
    x, y = 5, -7
    u, v = 2**31 + x, 2**31 + y
    sums = [[u, u * u // 2**32, u * u % 2**32], [v, v * v // 2**32, v * v % 2**32]]
    for index, at in ((1, 65), (2, 72), (3, 79), (4, 79), (9, 79)):
        expected = [(0, 1), (at, 1), *enumerate(sums[0] + sums[1], at + 1)]
        assert layout.report((x, y), index) == expected
        assert layout.sums_at(index, 0, 6, *sums[0]) == [(0, 6), (at, 6), *enumerate(sums[0], at + 1)]
        assert layout.sums_at(index, 1, 6, *sums[1]) == [*enumerate(sums[1], at + 4)]
    assert layout.pair(64) == [(64, 1)]
    counts = np.arange(layout.cells)
    assert layout.pairs(counts).tolist() == list(range(1, 65))
    assert layout.ages_of(counts).tolist() == [65, 72, 79]


def test_many_reports_stand_where_one_does() -> None:
    layout = Layout(1, 3)
    counts = layout.reports(np.array([5, -7, 5]), np.array([1, 3, 8]))
    expected = np.zeros(65 + 3 * 4, dtype=np.int64)
    for x, index in ((5, 1), (-7, 3), (5, 8)):
        for cell, amount in layout.report((x,), index):
            expected[cell] += amount
    assert counts.tolist() == expected.tolist()
    assert (counts[0], layout.sum_of(counts), sum_of_squares(layout, counts, 0)) == (3, 3, 99)
    assert layout.sum_of(np.stack([counts, 2 * counts])).tolist() == [3, 6]
