"""What an error must say: facts, such as a field's name, its value and what is expected, in words that may change."""

import contextlib
import re
from collections.abc import Iterator

import pytest

from undertone_shared.errors import Invalid


def missing(sentence: str, facts: tuple[object, ...]) -> list[object]:
    """Return the facts that a sentence does not hold as whole words."""
    return [fact for fact in facts if not re.search(rf"(?<!\w){re.escape(str(fact))}(?!\w)", sentence)]


@contextlib.contextmanager
def refused(*facts: object, error: type[Exception] = Invalid) -> Iterator[None]:
    """Expect an error whose sentence holds each of these facts."""
    with pytest.raises(error) as caught:
        yield
    assert missing(str(caught.value), facts) == [], str(caught.value)
