"""The guides that the page links to, as HTML. An installed wheel has them in this package, a checkout in ``docs``."""

import html
import re
from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from urllib.parse import urlsplit

from markdown_it import MarkdownIt
from markdown_it.token import Token

_HERE = Path(__file__).resolve().parent
_PLACES = (_HERE / "guides", _HERE.parents[2] / "docs")
# The guides that explain what the page shows, and some guides to which those link. pyproject.toml includes the same
# guides in the wheel.
GUIDES = (
    "comparison",
    "concepts",
    "filter",
    "glossary",
    "privacy",
    "scale",
    "statistician",
    "taking-part",
    "threats",
    "threshold",
)
# Pictures of these guides.
PICTURES = ("diagrams/who-sees-what.svg",)
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title} – Undertone</title>
<link rel="stylesheet" href="../static/style.css">
<link rel="icon" href="../static/icon.svg" type="image/svg+xml">
</head>
<body class="guide">
<a class="skip" href="#main">To the text</a>
<header><p><a href="../">&lsaquo; Undertone: the numbers</a></p></header>
<main id="main" tabindex="-1">
{body}</main>
<footer><nav aria-label="Guides">Guides: {guides}.</nav></footer>
</body>
</html>
"""
# HTML within a guide is shown as text, because no guide contains any.
_MARKDOWN = MarkdownIt("commonmark", {"html": False}).enable("table")


def picture(name: str) -> Path | None:
    """Return the file of a picture of the guides. Return None if it is unknown, or if the installation lacks it."""
    return _file(name) if name in PICTURES else None


@cache
def guide(name: str) -> str | None:
    """Return a guide as an HTML page; None for an unknown name, or if the installation does not contain the guide.

    Links stay as text if they lead neither to one of these guides nor to the web; so do pictures that are not in
    `PICTURES`.
    """
    path = _file(f"{name}.md") if name in GUIDES else None
    if path is None:
        return None
    tokens = _MARKDOWN.parse(path.read_text(encoding="utf-8"))
    titles: list[str] = []
    for token, inside in pairwise(tokens):
        if token.type == "heading_open":
            titles.append("".join(part.content for part in inside.children or ()))
            token.attrSet("id", _anchor(titles[-1]))
    for token in tokens:
        if token.type == "inline":
            token.children = _with_known_links(token.children or [])
    body = _MARKDOWN.renderer.render(tokens, _MARKDOWN.options, {})
    # An empty cell in the corner of a table is no heading. A wide table scrolls by itself, also by keyboard.
    body = body.replace("<th></th>", "<td></td>")
    body = body.replace("<table>", '<div class="wide" tabindex="0"><table>').replace("</table>", "</table></div>")
    guides = ", ".join(f'<a href="{each}.md">{each.replace("-", " ")}</a>' for each in GUIDES)
    return _PAGE.format(title=html.escape(titles[0]), body=body, guides=guides)


def _file(name: str) -> Path | None:
    return next((place / name for place in _PLACES if (place / name).is_file()), None)


def _anchor(title: str) -> str:
    """Return a heading's anchor, as mkdocs makes it from an English title."""
    return re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", title.lower()).strip())


def _with_known_links(parts: Sequence[Token]) -> list[Token]:
    kept, dropped = [], False
    for part in parts:
        if part.type == "link_open":
            dropped = not _known(str(part.attrGet("href")))
        if part.type == "image" and str(part.attrGet("src")) not in PICTURES:
            part = Token("text", "", 0, content=part.content)
        if not (dropped and part.type in ("link_open", "link_close")):
            kept.append(part)
    return kept


def _known(link: str) -> bool:
    address = urlsplit(link)
    return bool(address.scheme) or address.path in ("", *(f"{name}.md" for name in GUIDES))
