"""What an experiment gives: a table, sentences, and the curves of its figure."""

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_COLOURS = 128
# Colours of lines, before they are dashed.
_LINES = 10

Cell = str | int | float
Curve = tuple[Sequence[float], Sequence[float]]


@dataclass(frozen=True)
class Panel:
    """One diagram: named curves (x, y); ``logarithmic``: in y. Points that are not ``joined`` have no line."""

    title: str
    x: str
    y: str
    curves: Mapping[str, Curve]
    logarithmic: bool = True
    logarithmic_x: bool = False
    joined: bool = True


@dataclass(frozen=True)
class Outcome:
    """``rows`` under ``columns``; ``notes`` are sentences, the guarantee among them."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    notes: Sequence[str] = ()
    panels: Sequence[Panel] = field(default=())

    def markdown(self) -> str:
        """A heading, a table, and the notes."""
        lines = [f"**{self.title}**", "", "| " + " | ".join(self.columns) + " |", "|" + "---|" * len(self.columns)]
        lines += ["| " + " | ".join(map(_text, row)) + " |" for row in self.rows]
        return "\n".join([*lines, "", *self.notes]) + "\n"

    def document(self, **facts: Any) -> dict[str, Any]:
        """For JSON; ``facts`` are further fields, such as the command that made it."""
        rows = [dict(zip(self.columns, row, strict=True)) for row in self.rows]
        return {"title": self.title, **facts, "rows": rows, "notes": list(self.notes)}

    @staticmethod
    def of(document: Mapping[str, Any]) -> "Outcome":
        """What ``document`` says, without its figure."""
        rows = document["rows"]
        columns = list(rows[0]) if rows else []
        return Outcome(document["title"], columns, [list(row.values()) for row in rows], document["notes"])

    def csv(self) -> str:
        """The table with a header."""
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([self.columns, *self.rows])
        return text.getvalue()

    def write(self, folder: Path, name: str, **facts: Any) -> None:
        """``name``.csv, ``name``.json with ``facts``, and ``name``.png. Raises OSError."""
        (folder / f"{name}.csv").write_text(self.csv())
        document = self.document(**facts)
        (folder / f"{name}.json").write_text(json.dumps(document, ensure_ascii=False, indent=1) + "\n")
        self.draw(folder / f"{name}.png")

    def draw(self, path: Path) -> None:
        """The figure, or the table where there is none, as a PNG of few colours. Raises OSError."""
        from matplotlib.figure import Figure
        from PIL import Image

        columns = min(len(self.panels), 2)
        lines = -(-len(self.panels) // max(columns, 1))
        figure = Figure(figsize=(6.4 * columns, 4.2 * lines), layout="constrained")
        for place, panel in enumerate(self.panels, 1):
            axes = figure.add_subplot(lines, columns, place)
            for number, (name, (x, y)) in enumerate(panel.curves.items()):
                marker, width = ("o" if len(x) < 20 else None), (1.2 if panel.joined else 0)
                style = "-" if number < _LINES else "--"
                axes.plot(x, y, style, marker=marker, markersize=3, linewidth=width, label=name)
            axes.set_title(panel.title)
            axes.set_xlabel(panel.x)
            axes.set_ylabel(panel.y)
            if panel.logarithmic:
                axes.set_yscale("log")
            if panel.logarithmic_x:
                axes.set_xscale("log")
            axes.legend(fontsize=8)
        if not self.panels:
            figure.set_size_inches(1.3 * len(self.columns), 0.8 + 0.25 * len(self.rows))
            axes = figure.add_subplot()
            axes.axis("off")
            axes.set_title(self.title)
            axes.table([[*map(_text, row)] for row in self.rows], colLabels=list(self.columns), loc="center")
        whole = io.BytesIO()
        figure.savefig(whole, format="png", dpi=100)
        Image.open(whole).convert("RGB").quantize(_COLOURS).save(path, format="png", optimize=True)


def _text(cell: Cell) -> str:
    return f"{cell:.4g}" if isinstance(cell, float) else str(cell)
