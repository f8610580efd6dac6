"""The guides that the page links to, as text. An installed wheel has them in this package, a checkout in ``docs``."""

from pathlib import Path

_HERE = Path(__file__).resolve().parent
_PLACES = (_HERE / "guides", _HERE.parents[2] / "docs")
# The guides that explain what the page shows; pyproject.toml includes the same ones in the wheel.
GUIDES = ("privacy", "statistician", "threats", "threshold", "filter", "glossary")


def guide(name: str) -> str | None:
    """Return a guide's text (Markdown); None for an unknown name, or if the installation does not contain the guide."""
    if name in GUIDES:
        for place in _PLACES:
            if (place / f"{name}.md").is_file():
                return (place / f"{name}.md").read_text(encoding="utf-8")
    return None
