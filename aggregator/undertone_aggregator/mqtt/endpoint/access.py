"""Reader of mosquitto's access-control file: the topics that each user may publish to, or read."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from undertone_aggregator.mqtt.filters import matches, overlap

_READ, _WRITE, _BOTH, _DENY = "read", "write", "readwrite", "deny"
_WORDS = (_READ, _WRITE, _BOTH, _DENY)


@dataclass(frozen=True)
class ReadRules:
    """Filters of the topics that a user may read, and of those that it may not read; the latter prevail."""

    allowed: tuple[str, ...]
    denied: tuple[str, ...] = ()

    def may_read(self, topic: str) -> bool:
        """Return True if the rules allow to read this topic."""
        return any(matches(rule, topic) for rule in self.allowed) and not any(
            matches(rule, topic) for rule in self.denied
        )

    def may_subscribe(self, topic_filter: str) -> bool:
        """Return True if this filter matches some topic of ``allowed``; `may_read` decides on each message."""
        return any(overlap(rule, topic_filter) for rule in self.allowed)


class Access:
    """The rules of a file: word (read, write or deny) -> user -> filters.

    The user "" stands for patterns, which hold for all users, with %u for the user's name.
    """

    def __init__(self, rules: Mapping[str, Mapping[str, Sequence[str]]]) -> None:
        self._rules = rules

    def may_publish(self, topic: str, user: str) -> bool:
        """Return True if a rule allows this user to publish to this topic, and no rule of this user denies it."""
        if any(matches(rule, topic) for rule in self._rules[_DENY].get(user, ())):
            return False
        rules = self._rules[_WRITE]
        if any(matches(rule, topic) for rule in rules.get(user, ())):
            return True
        return any(matches(pattern.replace("%u", user), topic) for pattern in rules.get("", ()))

    def reader(self, user: str) -> ReadRules | None:
        """Return the rules of a user that has a rule of its own for reading; None for other users, such as devices."""
        own = self._rules[_READ].get(user)
        if not own or not user:
            return None
        patterns = [pattern.replace("%u", user) for pattern in self._rules[_READ].get("", ())]
        return ReadRules((*own, *patterns), tuple(self._rules[_DENY].get(user, ())))


def read_access(path: Path) -> Access:
    """Read the rules of a file; invalid lines are skipped. Raises OSError."""
    rules: dict[str, defaultdict[str, list[str]]] = {word: defaultdict(list) for word in (_READ, _WRITE, _DENY)}
    user = ""
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        kind, _, rest = line.strip().partition(" ")
        word, _, topic = rest.strip().partition(" ")
        if word not in _WORDS:
            # Without one of these words, mosquitto grants both reading and writing.
            word, topic = _BOTH, rest
        if kind == "user":
            user = rest.strip()
        elif kind == "pattern" or (kind == "topic" and user):
            for each in (_READ, _WRITE) if word == _BOTH else (word,):
                rules[each]["" if kind == "pattern" else user].append(topic.strip())
    return Access(rules)
