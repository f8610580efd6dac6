"""The result of an experiment: a table, sentences, and the curves of its figure."""

import csv
import hashlib
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from undertone_shared.errors import Invalid
from undertone_studies import style
from undertone_studies.panel import Panel

Cell = str | int | float


def against_base(title: str, x: str, at: Sequence[float], curves: Mapping[str, Sequence[float]]) -> Panel:
    """Make a panel of mean squared errors over ε, relative to Base, so that streams are comparable.

    Base is the method that always answers 0.
    """
    named = {name: (at, y) for name, y in curves.items()}
    return Panel(title, x, "MSE", named, logarithmic_x=True, relative="Base", better="lower")


@dataclass(frozen=True)
class Outcome:
    """Result of an experiment: ``rows`` under ``columns``; ``notes`` are sentences, which include the guarantee."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    notes: Sequence[str] = ()
    panels: Sequence[Panel] = field(default=())

    def markdown(self) -> str:
        """Return a heading, the table, and the notes as Markdown."""
        lines = [f"**{self.title}**", "", "| " + " | ".join(self.columns) + " |", "|" + "---|" * len(self.columns)]
        lines += ["| " + " | ".join(map(_text, row)) + " |" for row in self.rows]
        return "\n".join([*lines, "", "\n\n".join(self.notes)]) + "\n"

    def document(self, **facts: Any) -> dict[str, Any]:
        """Return the result for JSON; ``facts`` are further fields, such as the command that made it."""
        rows = [dict(zip(self.columns, row, strict=True)) for row in self.rows]
        panels = [asdict(panel.thinned()) for panel in self.panels]
        return {"title": self.title, **facts, "rows": rows, "notes": list(self.notes), "panels": panels}

    @staticmethod
    def of(document: Mapping[str, Any]) -> "Outcome":
        """Read the result from a ``document``."""
        rows = document["rows"]
        columns = list(rows[0]) if rows else []
        panels = [Panel(**panel) for panel in document.get("panels", ())]
        return Outcome(document["title"], columns, [list(row.values()) for row in rows], document["notes"], panels)

    def csv(self) -> str:
        """Return the table as CSV with a header."""
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([self.columns, *self.rows])
        return text.getvalue()

    def write(self, folder: Path, name: str, **facts: Any) -> None:
        """Write ``name``.csv, ``name``.json with ``facts``, and for an outcome with panels ``name``.png.

        Raises OSError.
        """
        (folder / f"{name}.csv").write_text(self.csv(), encoding="utf-8")
        if self.panels:
            self.draw(folder / f"{name}.png")
            # The picture's hash is stored with the table, so that a test can check that they belong together.
            facts["picture"] = hashlib.sha256((folder / f"{name}.png").read_bytes()).hexdigest()
        text = json.dumps(self.document(**facts), ensure_ascii=False, indent=1, default=lambda value: value.item())
        (folder / f"{name}.json").write_text(text + "\n", encoding="utf-8")

    def draw(self, path: Path) -> None:
        """Draw the figure as a PNG. Raises OSError, and Invalid for an outcome without panels."""
        if not self.panels:
            raise Invalid(f"{self.title!r} is a table: it has no figure")
        style.save(style.figure([panel.thinned() for panel in self.panels]), path)


def _text(cell: Cell) -> str:
    return f"{cell:.4g}" if isinstance(cell, float) else str(cell)
