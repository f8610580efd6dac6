"""What the guides point to is there."""

import re
import subprocess

import pytest

from support.micropython import REPO

GUIDES = sorted(
    REPO / name
    for name in subprocess.run(
        ["git", "ls-files", "*.md"], cwd=REPO, capture_output=True, text=True, check=True
    ).stdout.split()
)
_LINK = re.compile(r"\]\(([^)#\s]+)[^)]*\)")


@pytest.mark.parametrize("guide", GUIDES, ids=lambda guide: str(guide.relative_to(REPO)))
def test_links_lead_somewhere(guide):
    links = [link for link in _LINK.findall(guide.read_text(encoding="utf-8")) if "://" not in link]
    missing = [link for link in links if not (guide.parent / link).exists()]
    assert not missing, f"{guide.name} points to {', '.join(missing)}"
