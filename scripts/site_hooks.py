"""Take the guides that are beside their code into the site, with the pages that are made from the code; mend links."""

import os
import re
import sys
from pathlib import Path
from typing import Any

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
}
_LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")
# The table of a figure, defined at the end of a guide.
_DEFINITION = re.compile(r"^(\[[\w-]+\]: )(\S+)", re.MULTILINE)


def on_files(files: Files, config: Any) -> Files:
    """Add the guides and the pages made from the code."""
    for target, page in reference_pages.PAGES.items():
        files.append(File.generated(config, target, content=page()))
    for source, target in GUIDES.items():
        files.append(File.generated(config, target, abs_src_path=str(ROOT / source)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Point links to files of the repository to their pages; a link to a file without a page becomes plain text."""
    here = page.file.src_uri
    source = next((s for s, target in GUIDES.items() if target == here), f"docs/{here}")

    def target(path: str) -> str | None:
        aim = os.path.normpath(os.path.join(os.path.dirname(source), path))
        place = GUIDES.get(aim) or (aim.removeprefix("docs/") if aim.startswith("docs/") else None)
        if place is None or files.get_file_from_path(place) is None:
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

    return _DEFINITION.sub(defined, _LINK.sub(moved, markdown))
