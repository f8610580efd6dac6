import contextlib
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.refusal import refused
from undertone_aggregator.counts.partial import LARGEST_CELLS, Key, Partial, pack_counts, unpack_counts, unpack_each
from undertone_shared.errors import Invalid
from undertone_shared.report import STREAM

KEYS = st.builds(
    Key,
    st.sampled_from(["meters", "other"]),
    st.sampled_from([b"abcdefgh", b"\x00\xff\x01\x02\x03\x04\x05\x06"]),
    st.integers(0, 1),  # 0 and 1 only: streams keep moments instead
    st.sampled_from(["all", "north"]),
    st.integers(0, 0xFFFFFFFF),
)
CELLS = 7
REPORTS = st.lists(st.tuples(KEYS, st.integers(0, CELLS - 1)), max_size=20)


def of(reports: list[tuple[Key, int]]) -> Partial:
    partial = Partial()
    for key, symbol in reports:
        partial.add(key, symbol, CELLS)
    return partial


@pytest.mark.slow
@given(REPORTS, REPORTS, REPORTS)
def test_merge_is_associative_commutative_and_counts_the_union(a: list, b: list, c: list) -> None:  # type: ignore[type-arg]
    first, second, third = of(a), of(b), of(c)
    assert first.merge(second).merge(third) == first.merge(second.merge(third)) == of(c + a + b)
    assert first.merge(second) == second.merge(first)
    assert first.merge(Partial()) == first
    assert of(a) == first, "merge leaves its operands alone"
    assert first.merge(second).reports == len(a) + len(b)


@pytest.mark.slow
@given(REPORTS, REPORTS)
def test_whole_histograms_are_added_as_their_reports_are(a: list, b: list) -> None:  # type: ignore[type-arg]
    whole, before = of(a), of(b)
    for key, counts in before.items():
        whole.add_counts(key, counts)
    assert whole == of(a + b)
    assert before == of(b)


def test_a_streams_moments_add_up_and_its_first_cell_counts_the_reports() -> None:
    key, partial = Key("load", b"abcdefgh", STREAM, "all", 5), Partial()
    partial.add_moments(key, [(0, 1), (2, 40)], 4)
    partial.add_moments(key, [(0, 1), (2, 2), (3, 7)], 4)
    assert partial[key].tolist() == [2, 0, 42, 7]
    assert partial.reports == 2


def test_partials_are_equal_only_key_for_key_and_count_for_count() -> None:
    """Other tests rely on this comparison: if it were weaker, they would pass wrongly."""
    key, other = (Key("meters", b"abcdefgh", 1, "all", slot) for slot in (5, 6))
    whole = of([(key, 1), (other, 2)])
    assert whole == of([(other, 2), (key, 1)])
    for different in ([(key, 1), (other, 3)], [(key, 1), (other, 2), (other, 2)], [(key, 1)], [], [(other, 2)]):
        assert whole != of(different)
        assert of(different) != whole
    assert Partial() == Partial()
    assert whole != 5


@given(st.lists(st.one_of(st.just(0), st.integers(0, 2**40)), max_size=300))
def test_histograms_survive_packing(counts: list[int]) -> None:
    array = np.array(counts, dtype=np.int64)
    assert np.array_equal(unpack_counts(pack_counts(array)), array)


@settings(max_examples=300)
@given(st.binary(max_size=60))
def test_no_bytes_raise_anything_else_than_invalid(data: bytes) -> None:
    with contextlib.suppress(Invalid):
        unpack_counts(data)


def test_a_few_reports_take_few_bytes() -> None:
    counts = np.zeros(1645, dtype=np.int64)
    counts[[3, 900]] = 5
    assert len(pack_counts(counts)) == 5 + 2 * 5


def test_a_histogram_has_four_million_cells_at_most() -> None:
    for cells, fits in ((1 << 22, True), ((1 << 22) + 1, False)):
        data = struct.pack("<BIIB", 4, cells, cells - 1, 9)
        if fits:
            assert len(unpack_counts(data)) == cells == LARGEST_CELLS
        else:
            with refused("histogram", 4194305, 4194304):
                unpack_counts(data)


def test_two_lengths_do_not_merge() -> None:
    key = Key("meters", b"abcd", 1, "all", 5)
    first, second = Partial(), Partial()
    first.add(key, 0, 3)
    second.add(key, 0, 4)
    with pytest.raises(Invalid, match="3 and 4 cells"):
        first.merge(second)


@pytest.mark.parametrize(
    ("largest", "width"),
    [(0, 0), (255, 0), (256, 1), (65535, 1), (65536, 2), (2**32 - 1, 2), (2**32, 3), (2**62, 3)],
)
def test_counts_take_the_least_width_that_holds_them(largest: int, width: int) -> None:
    dense, sparse = np.array([largest, 1, 1]), np.zeros(100, dtype=np.int64)
    sparse[[0, 99]] = largest, 1
    for counts, form in ((dense, width), (sparse, width + 4)):
        packed = pack_counts(counts)
        assert packed[0] == form
        assert unpack_counts(packed).tolist() == counts.tolist()
    assert len(pack_counts(dense)) == 5 + 3 * 2**width
    assert len(pack_counts(sparse)) == 5 + (1 if largest == 0 else 2) * (4 + 2**width)


def test_a_histogram_is_sparse_only_where_that_is_shorter() -> None:
    # With counts of one byte, a sparse entry (index and count) takes five bytes. With five cells, both forms are
    # equally long.
    for cells, form in ((4, 0), (5, 0), (6, 4)):
        counts = np.zeros(cells, dtype=np.int64)
        counts[1] = 7
        assert pack_counts(counts)[0] == form
    assert unpack_counts(pack_counts(np.zeros(0, dtype=np.int64))).tolist() == []
    largest = np.zeros(LARGEST_CELLS, dtype=np.int64)
    assert len(unpack_counts(pack_counts(largest))) == LARGEST_CELLS


@pytest.mark.parametrize(
    "data",
    [
        b"",
        bytes(4),
        struct.pack("<BI", 8, 0),
        struct.pack("<BI", 0, LARGEST_CELLS + 1) + bytes(LARGEST_CELLS + 1),
        struct.pack("<BI", 4, LARGEST_CELLS + 1),
        struct.pack("<BI", 0, 3) + bytes(2),
        struct.pack("<BI", 0, 3) + bytes(4),
        struct.pack("<BI", 1, 3) + bytes(3),
        struct.pack("<BIIB", 4, 3, 3, 1),
        struct.pack("<BIIIBB", 4, 9, 2, 2, 1, 1),
        struct.pack("<BIIIBB", 4, 9, 2, 1, 1, 1),
        struct.pack("<BIIB", 4, 3, 1, 1) + b"x",
    ],
)
def test_damaged_histograms_are_refused(data: bytes) -> None:
    with pytest.raises(Invalid, match="histogram"):
        unpack_counts(data)


def test_the_last_cell_may_be_the_only_one() -> None:
    assert unpack_counts(struct.pack("<BIIB", 4, 3, 2, 9)).tolist() == [0, 0, 9]
    assert unpack_counts(struct.pack("<BIIIBB", 4, 9, 2, 3, 8, 9)).tolist() == [0, 0, 8, 9, 0, 0, 0, 0, 0]


def test_many_histograms_of_all_forms_are_unpacked_in_their_order() -> None:
    rng = np.random.default_rng(5)
    histograms = []
    for cells, largest, filled in [(16, 200, 16), (16, 70_000, 16), (64, 9, 3), (64, 2**40, 2), (64, 9, 5), (0, 1, 0)]:
        for _ in range(5):
            counts = np.zeros(cells, dtype=np.int64)
            counts[rng.choice(cells, filled, replace=False)] = rng.integers(1, largest, filled)
            histograms.append(counts)
    order = rng.permutation(len(histograms)).tolist()
    packed = [pack_counts(histograms[place]) for place in order]
    for place, counts in zip(order, unpack_each(packed), strict=True):
        assert counts.dtype == np.int64
        assert counts.tolist() == histograms[place].tolist()
    packed[7] = packed[7][:-1]
    with refused("histogram"):
        unpack_each(packed)
