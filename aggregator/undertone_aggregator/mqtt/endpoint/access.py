"""Reader of the rules for publishing in mosquitto's access-control file: the topics to which each user may publish."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from undertone_aggregator.mqtt.filters import matches

_WRITES = ("write", "readwrite")
_WORDS = ("read", "deny", *_WRITES)


class Access:
    """Rules for publishing. ``topics``: user -> filters; ``patterns``: filters of all users, %u: the user's name."""

    def __init__(self, topics: Mapping[str, Sequence[str]], patterns: Sequence[str]) -> None:
        self._topics = topics
        self._patterns = patterns

    def may_publish(self, topic: str, user: str) -> bool:
        """Return True if a rule allows this user to publish to this topic."""
        if any(matches(rule, topic) for rule in self._topics.get(user, ())):
            return True
        return any(matches(pattern.replace("%u", user), topic) for pattern in self._patterns)


def read_access(path: Path) -> Access:
    """Read the rules for publishing from a file; other rules and invalid lines are skipped. Raises OSError."""
    topics: defaultdict[str, list[str]] = defaultdict(list)
    patterns: list[str] = []
    user = ""
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        kind, _, rest = line.strip().partition(" ")
        word, _, topic = rest.strip().partition(" ")
        if word not in _WORDS:
            # Without one of these words, mosquitto grants both reading and writing.
            word, topic = _WRITES[1], rest
        if kind == "user":
            user = rest.strip()
        elif kind == "topic" and word in _WRITES:
            topics[user].append(topic.strip())
        elif kind == "pattern" and word in _WRITES:
            patterns.append(topic.strip())
    return Access(topics, patterns)
