import contextlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from undertone_aggregator.collect.partial import Key, Partial, pack_counts, unpack_counts
from undertone_shared.errors import Invalid
from undertone_shared.report import STREAM

KEYS = st.builds(
    Key,
    st.sampled_from(["meters", "other"]),
    st.sampled_from([b"abcdefgh", b"\x00\xff\x01\x02\x03\x04\x05\x06"]),
    st.integers(0, 1),  # streams keep moments instead
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


@given(REPORTS, REPORTS, REPORTS)
def test_merge_is_associative_commutative_and_counts_the_union(a: list, b: list, c: list) -> None:  # type: ignore[type-arg]
    first, second, third = of(a), of(b), of(c)
    assert first.merge(second).merge(third) == first.merge(second.merge(third)) == of(c + a + b)
    assert first.merge(second) == second.merge(first)
    assert first.merge(Partial()) == first
    assert of(a) == first, "merge leaves its operands alone"
    assert first.merge(second).reports == len(a) + len(b)


def test_a_streams_moments_add_up_and_its_first_cell_counts_the_reports() -> None:
    key, partial = Key("load", b"abcdefgh", STREAM, "all", 5), Partial()
    partial.add_moments(key, [(0, 1), (2, 40)], 4)
    partial.add_moments(key, [(0, 1), (2, 2), (3, 7)], 4)
    assert partial[key].tolist() == [2, 0, 42, 7]
    assert partial.reports == 2


def test_partials_are_equal_only_key_for_key_and_count_for_count() -> None:
    """Other tests compare by this: were it weaker, they would pass wrongly."""
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


def test_two_lengths_do_not_merge() -> None:
    key = Key("meters", b"abcd", 1, "all", 5)
    first, second = Partial(), Partial()
    first.add(key, 0, 3)
    second.add(key, 0, 4)
    with pytest.raises(Invalid, match="3 and 4 cells"):
        first.merge(second)
