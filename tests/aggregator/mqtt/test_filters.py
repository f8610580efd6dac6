"""Topic filters: which topics they match, and whether two of them have a topic in common."""

import itertools

import pytest

from undertone_aggregator.mqtt.filters import check_filter, matches, overlap
from undertone_shared.errors import Invalid

LEVELS = ["a", "b", "$s"]
TOPICS = ["/".join(levels) for n in (1, 2, 3, 4) for levels in itertools.product(LEVELS, repeat=n)]
FILTERS = [
    "/".join([*levels, *end])
    for n in (0, 1, 2, 3)
    for levels in itertools.product(["a", "$s", "+"], repeat=n)
    for end in ([], ["#"])
    if levels or end
]


def test_two_filters_overlap_if_some_topic_matches_both() -> None:
    matched = {each: {topic for topic in TOPICS if matches(each, topic)} for each in FILTERS}
    for one, other in itertools.product(FILTERS, repeat=2):
        assert overlap(one, other) == bool(matched[one] & matched[other]), (one, other)


@pytest.mark.parametrize("wrong", ["", "a/#/b", "a+", "a/b#", "a\0", "a" * 65_536])
def test_a_filter_that_is_none_is_refused(wrong: str) -> None:
    with pytest.raises(Invalid, match="the topic filter is"):
        check_filter(wrong)
