"""MQTT topics and topic filters: which topics a filter matches (section 4.7), and which topics belong to campaigns."""

from itertools import zip_longest

from undertone_shared.errors import Invalid
from undertone_shared.topics import check_name, config_topic

_LONGEST = 65_535
ONE_LEVEL, ALL_LEVELS = "+", "#"


def check_filter(topic: str) -> str:
    """Return ``topic`` if it is a valid topic filter. Raises Invalid."""
    levels = topic.split("/")
    wild = [level for level in levels if ONE_LEVEL in level or ALL_LEVELS in level]
    fits = topic and "\0" not in topic and len(topic.encode()) <= _LONGEST
    if not fits or any(len(level) > 1 for level in wild) or ALL_LEVELS in levels[:-1]:
        raise Invalid(f"the topic filter is {topic!r}, expected levels, with + for one level and # for all that follow")
    return topic


def matches(topic_filter: str, topic: str) -> bool:
    """Return True if the filter matches the topic.

    A wildcard in the first level matches no topic that begins with $ (4.7.2).
    """
    if topic_filter == topic:
        return True
    wanted, levels = topic_filter.split("/"), topic.split("/")
    if topic.startswith("$") and wanted[0] in (ONE_LEVEL, ALL_LEVELS):
        return False
    for number, level in enumerate(wanted):
        if level == ALL_LEVELS:
            return True
        if number >= len(levels) or level not in (ONE_LEVEL, levels[number]):
            return False
    return len(wanted) == len(levels)


def overlap(one: str, other: str) -> bool:
    """Return True if some topic matches both filters."""
    ours, theirs = one.split("/"), other.split("/")
    wild = {ours[0], theirs[0]} & {ONE_LEVEL, ALL_LEVELS}
    if wild and any(levels[0].startswith("$") for levels in (ours, theirs)):
        # A wildcard in the first level matches no topic that begins with $.
        return False
    for a, b in zip_longest(ours, theirs):
        if ALL_LEVELS in (a, b):
            return True
        if a is None or b is None or (a != b and ONE_LEVEL not in (a, b)):
            return False
    return True


def campaign_of(prefix: str, topic: str) -> str | None:
    """Return the name of the campaign that is broadcast on this topic; None if no campaign is broadcast on it."""
    name = topic.removeprefix(f"{prefix}/").removesuffix("/config")
    try:
        return check_name("campaign", name) if topic == config_topic(prefix, name) else None
    except Invalid:
        return None


def series_of(prefix: str, topic: str) -> str | None:
    """Return what follows ``PREFIX/CAMPAIGN/aggregate/`` in the topic of a published series.

    Return None for any other topic, and for a filter with wildcards.
    """
    start, _, series = topic.partition("/aggregate/")
    if not series or "+" in topic or "#" in topic or not start.startswith(f"{prefix}/"):
        return None
    try:
        check_name("campaign", start.removeprefix(f"{prefix}/"))
    except Invalid:
        return None
    return series
