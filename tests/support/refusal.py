"""Checks that an error or a printed line has certain facts, such as a field's name and value.

Its other words may change.
"""

import contextlib
import re
from collections.abc import Iterator

import pytest

from undertone_shared.errors import Invalid


def missing(sentence: str, facts: tuple[object, ...]) -> list[object]:
    """Return the facts that a sentence does not have as whole words."""
    return [fact for fact in facts if not re.search(rf"(?<!\w){re.escape(str(fact))}(?!\w)", sentence)]


def told(text: str, *facts: object) -> bool:
    """Return whether one line of a text has all of these facts as whole words."""
    return any(missing(line, facts) == [] for line in text.splitlines())


@contextlib.contextmanager
def refused(*facts: object, error: type[Exception] = Invalid) -> Iterator[None]:
    """Expect an error whose sentence has each of these facts."""
    with pytest.raises(error) as caught:
        yield
    assert missing(str(caught.value), facts) == [], str(caught.value)
