"""The blocks of a guide of docs/, in order, for tests that type them."""

import json
import re

from support.micropython import REPO

_BLOCK = re.compile(r"```(\w+)\n([\s\S]*?)```|((?:^    .+\n)+)", re.MULTILINE)


def all_blocks(page: str) -> list[tuple[str, str]]:
    """The kind and text of each block on a page. Indented blocks have the kind ``commands``."""
    text = (REPO / "docs" / page).read_text("utf-8")
    return [(name or "commands", fenced or indented) for name, fenced, indented in _BLOCK.findall(text)]


def blocks(page: str, kind: str) -> list[str]:
    """The texts of the blocks of one kind on a page."""
    return [text for name, text in all_blocks(page) if name == kind]


def typed(page: str) -> list[str]:
    """The lines that a page asks to type into a shell, in order."""
    texts = [text for kind, text in all_blocks(page) if kind in ("commands", "sh")]
    return [line.strip() for text in texts for line in text.splitlines()]


def settings(page: str) -> dict:
    """The fields that the page adds to device.json."""
    [text] = blocks(page, "json")
    return json.loads(text)
