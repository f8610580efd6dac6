"""Reads a report's topic level by level. Tests compare admission's regular expression with this function."""

from undertone_shared.errors import Invalid
from undertone_shared.topics import SHARDS, check_name


def is_report_topic(prefix: str, campaign: str, topic: str) -> bool:
    """Whether the levels are exactly those of ``report_topic``. Whether the shard is the device's is not checked."""
    if not topic.startswith(prefix + "/"):
        return False
    levels = topic[len(prefix) + 1 :].split("/")
    if len(levels) != 4 or (levels[0], levels[3]) != (campaign, "report"):
        return False
    try:
        check_name("device", levels[2])
    except Invalid:
        return False
    return levels[1] in map(str, range(SHARDS))
