"""No link of a page is dead: its file is in the repository, and its anchor is a heading, on the site and on GitHub."""

import os
import re
import subprocess
import unicodedata
from collections.abc import Iterator
from urllib.parse import unquote

import pytest

from support.micropython import REPO

TRACKED = subprocess.run(["git", "ls-files"], cwd=REPO, capture_output=True, encoding="utf-8", check=True).stdout.split(
    "\n"
)
FILES = {name for name in TRACKED if name and (REPO / name).exists()}
PAGES = sorted(name for name in FILES if name.endswith(".md"))
# scripts/reference_pages.py makes these pages, which only the site has.
MADE = {"docs/commands.md", "docs/settings.md", "docs/messages.md"}
_FENCE = re.compile(r"^( *)(```|~~~).*?^\1\2[^\n]*$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`[^`\n]*`")
_INLINE = re.compile(r"\]\(\s*<?([^)\s>]+)>?[^)]*\)")
_DEFINED = re.compile(r"^\[[^\]]+\]:\s*(\S+)", re.MULTILINE)
_HTML = re.compile(r"""<(?:a|img)\b[^>]*?(?:href|src)=["']([^"']+)["']""")
_HEADING = re.compile(r"^#{1,6} +(.+?) *#*$", re.MULTILINE)


def text_of(page: str) -> str:
    return _FENCE.sub("", (REPO / page).read_text(encoding="utf-8"))


def on_site(heading: str) -> str:
    """The anchor that Python-Markdown makes from a heading."""
    plain = unicodedata.normalize("NFKD", heading).encode("ascii", "ignore").decode()
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", plain).strip().lower())


def on_forge(heading: str) -> str:
    """The anchor that GitHub makes from a heading."""
    return re.sub(r"[^\w\s-]", "", heading.strip().lower()).replace(" ", "-")


def anchors(page: str) -> set[str]:
    """The anchors of a page that are the same on the site and on GitHub."""
    titles = [re.sub(r"\]\([^)]*\)", "]", title) for title in _HEADING.findall(text_of(page))]
    return {on_site(title) for title in titles} & {on_forge(title) for title in titles}


def links(page: str) -> Iterator[str]:
    text = _CODE.sub("", text_of(page))
    for pattern in (_INLINE, _DEFINED, _HTML):
        yield from pattern.findall(text)


def dead(page: str, address: str) -> str:
    """Return why a link of a page is dead, or "" if it is not; links to other hosts are not tried."""
    if re.match(r"[a-z]+:", address):
        return ""
    path, _, anchor = unquote(address).partition("#")
    aim = os.path.normpath(os.path.join(os.path.dirname(page), path)) if path else page
    if aim not in FILES | MADE and not any(name.startswith(f"{aim}/") for name in FILES):
        return f"there is no {aim}"
    if anchor and aim in PAGES and anchor not in anchors(aim):
        return f"{aim} has no heading #{anchor}"
    return ""


@pytest.mark.parametrize("page", PAGES)
def test_no_link_is_dead(page: str) -> None:
    assert [f"{address}: {why}" for address in links(page) if (why := dead(page, address))] == []


def test_links_of_every_kind_are_seen() -> None:
    assert dead("docs/api.md", "nothing.md")
    assert dead("docs/api.md", "#nothing")
    assert dead("docs/api.md", "filter.md#nothing")
    assert dead("docs/api.md", "../LICENSE") == ""
    assert _INLINE.findall('[a](b.md) ![c](d.png "e") [`f`](<g.md>)') == ["b.md", "d.png", "g.md"]
    assert _DEFINED.findall('[a]: results/b.csv "c=1; d"') == ["results/b.csv"]
    assert _HTML.findall('<img alt="a" src="b.png">') == ["b.png"]
