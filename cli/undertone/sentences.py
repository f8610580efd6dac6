"""Error sentences for a wrong command line: the given value, the expected one, and a suggestion."""

import difflib
import re
from collections.abc import Callable, Sequence
from typing import Any

_EXPECTED = re.compile(r" (?:is|unknown option) '([^']*)', expected (?:one of )?([\w-]+(?:, [\w-]+)+)")

# What the several versions of Typer say of a number below an option's least value.
_LEAST = re.compile(r"(?:greater than or equal to |in the range x>=)(\d+)")

# What Typer says of a positional argument that should be a number.
_ARGUMENT = re.compile(r"invalid value for '\[?(\w+)(?:\.\.\.\])?': .*\binteger\b")


def with_suggestion(sentence: str) -> str:
    """Return the sentence; add "did you mean hybrid?" if it says "X is 'hybird', expected one of auto, hybrid"."""
    found = _EXPECTED.search(sentence)
    near = difflib.get_close_matches(found[1], found[2].split(", "), 1) if found else []
    return f"{sentence}: did you mean {near[0]}?" if near else sentence


def usage_sentence(error: Any, words: Sequence[str]) -> str:
    """Return one sentence about the error that Typer found in ``words``, the words of the command line."""
    if type(error).__name__ == "NoSuchOption":
        option = error.option_name
        if re.fullmatch(r"-\d[\d.]*", option):
            return f"{option} is a number where an option is expected: a number follows its option, as in --bound 5"
        near = sorted(error.possibilities or [])
        return f"there is no option {option}" + (f": did you mean {' or '.join(near)}?" if near else "")
    options: Sequence[str] = getattr(getattr(error, "param", None), "opts", ())
    values = _given(options, words)
    if not values:
        sentence = _plain(error.format_message())
        argument = _ARGUMENT.match(sentence)
        return f"{argument[1]} is not a whole number, expected one such as 5" if argument else sentence
    message = str(error.message)
    # Of an option that may be repeated, name the value that is wrong.
    kind = int if "integer" in message else float
    wrong = (value for value in values if getattr(error.param, "multiple", False) and not _is(kind, value))
    given = next(wrong, values[-1])
    if least := _LEAST.search(message):
        return f"{options[0]} is {given!r}, expected a number from {least[1]}"
    if "integer" in message:
        return f"{options[0]} is {given!r}, expected a whole number"
    if "number" in message or "float" in message:
        return f"{options[0]} is {given!r}, expected a number"
    return f"{options[0]} is {given!r}: {_plain(message)}"


def _plain(message: str) -> str:
    """Return a message so that it can stand inside a sentence: no capital at the start, no full stop."""
    message = " ".join(message.split()).rstrip(".")
    return message[:1].lower() + message[1:]


def _is(kind: Callable[[str], object], text: str) -> bool:
    """Return True if a text is a number of this kind."""
    try:
        kind(text)
    except ValueError:
        return False
    return True


def _given(options: Sequence[str], words: Sequence[str]) -> list[str]:
    """Return the values of an option in the words of a command line. Typer takes the last one, or all of them."""
    values = []
    for i, word in enumerate(words):
        for option in options:
            if word == option and i + 1 < len(words):
                values.append(words[i + 1])
            elif word.startswith(option + "="):
                values.append(word[len(option) + 1 :])
    return values
