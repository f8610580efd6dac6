"""The words that people read, one file for each language: en.json is complete, and every other has the same fields.

To add a language, add its file here; the phone's app and every program on a gateway find it.
"""

import json
from pathlib import Path
from typing import Any

DEFAULT = "en"
_FOLDER = Path(__file__).parent


def languages() -> list[str]:
    """Return the languages that have a file."""
    return sorted(path.stem for path in _FOLDER.glob("*.json"))


def read_words(language: str) -> dict[str, Any]:
    """Return the words of a language tag such as ``de`` or ``de-AT``; English for a language without a file."""
    name = language.lower().replace("_", "-").split("-")[0]
    if name not in languages():
        name = DEFAULT
    words: dict[str, Any] = json.loads(_FOLDER.joinpath(f"{name}.json").read_text(encoding="utf-8"))
    return words
