"""Add the guides that stand beside their code, and the pages made from the code, to the site; correct their links."""

import html
import os
import re
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "scripts"))

import reference_pages  # noqa: E402

# Path in the repository -> path in the site.
GUIDES = {
    "README.md": "index.md",
    "device/README.md": "guides/device.md",
    "aggregator/README.md": "guides/aggregator.md",
    "simulator/README.md": "guides/simulator.md",
    "CHANGELOG.md": "changes.md",
    "SECURITY.md": "security.md",
    "CONTRIBUTING.md": "contributing.md",
    "aggregator/undertone_aggregator/web/static/icon.svg": "logo.svg",
}
_LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")
# A paragraph that is indented as code. A formula also has one of the signs below, and no word of six letters.
_FORMULA = re.compile(r"(?<=\n\n)((?:    \S[^\n]*\n)+)(?=\n)")
_SIGNS = re.compile(r"[θεΣ√²ρτ]")
_LONG_WORD = re.compile(r"[A-Za-z]{6}")
_DEFINITION = re.compile(r"^(\[[\w-]+\]: )(\S+)", re.MULTILINE)


# Pages whose tables need much width. They have no list of contents beside them.
WIDE = ("equations.md",)


def on_files(files: Files, config: Any) -> Files:
    """Add the guides and the pages made from the code."""
    for target, page in reference_pages.PAGES.items():
        files.append(File.generated(config, target, content=page()))
    for source, target in GUIDES.items():
        files.append(File.generated(config, target, abs_src_path=str(ROOT / source)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Point links to files of the repository to their pages; a link to a file without a page becomes plain text.

    A link to a file that does not exist ends the build.
    """
    here = page.file.src_uri
    if here in WIDE:
        page.meta["hide"] = ["toc"]
    source = next((s for s, target in GUIDES.items() if target == here), f"docs/{here}")

    def target(path: str) -> str | None:
        aim = os.path.normpath(os.path.join(os.path.dirname(source), path))
        place = GUIDES.get(aim) or (aim.removeprefix("docs/") if aim.startswith("docs/") else None)
        if place is None or files.get_file_from_path(place) is None:
            if not (ROOT / aim).exists():
                raise PluginError(f"{source} links to {path}, which does not exist")
            return None
        return os.path.relpath(place, os.path.dirname(here) or ".")

    def moved(link: re.Match[str]) -> str:
        image, words, address = link.groups()
        path, mark, anchor = address.partition("#")
        if "://" in address or not path:
            return link.group(0)
        place = target(path)
        return words if place is None else f"{image}[{words}]({place}{mark}{anchor})"

    def defined(definition: re.Match[str]) -> str:
        label, path = definition.groups()
        return f"{label}{target(path) or path}"

    return _DEFINITION.sub(defined, _LINK.sub(moved, _FORMULA.sub(formula, markdown)))


def formula(paragraph: re.Match[str]) -> str:
    """Return a formula as an element of its own; code, prose and tables within lists stay as they are."""
    text = paragraph[1]
    if not _SIGNS.search(text) or _LONG_WORD.search(text) or "|" in text:
        return text
    lines = "\n".join(line.strip() for line in text.splitlines())
    return f'<div class="formula">{html.escape(lines)}</div>\n'


def on_config(config: Any) -> None:
    """Say the version at the foot of each page."""
    config.copyright = f"Undertone {version('undertone-ldp')}, not released"
