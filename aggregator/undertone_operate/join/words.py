"""The language that a person's program prefers, and the sentences of refusals in each language."""

import re

from undertone_device.host import words

# An item of Accept-Language (RFC 9110, section 12.5.4): a language, and its weight if there is one.
_ITEM = re.compile(r"\s*([A-Za-z]{1,8})(?:-[A-Za-z0-9]{1,8})*\s*(?:;\s*[qQ]=([01](?:\.[0-9]{0,3})?))?\s*")
_LARGEST_HEADER = 1000
DEFAULT = words.DEFAULT
# Language -> reason -> sentence.
REFUSALS: dict[str, dict[str, str]] = {name: words.read_words(name)["refusals"] for name in words.languages()}


def language_of(header: str) -> str:
    """Return the language of `REFUSALS` that an Accept-Language header prefers; English for any other header."""
    best, weight = DEFAULT, 0.0
    for item in header[:_LARGEST_HEADER].split(","):
        match = _ITEM.fullmatch(item)
        if match is not None and match[1].lower() in REFUSALS:
            wanted = float(match[2] or 1)
            if wanted > weight:
                best, weight = match[1].lower(), wanted
    return best
