"""Estimates as a table in Markdown: an output format that the product does not ship."""

from collections.abc import Sequence

from undertone_aggregator.estimate.estimates import Row
from undertone_aggregator.estimate.query import Results


def to_markdown(results: Results, rows: Sequence[Row], kind: type[Row]) -> bytes:
    """Return rows of one kind as a table, with an empty cell for a missing value."""
    names = kind.columns()
    table = [names, ["---"] * len(names), *([row.row()[name] for name in names] for row in rows)]
    lines = (" | ".join("" if cell is None else str(cell) for cell in cells) for cells in table)
    return "".join(f"| {line} |\n" for line in lines).encode()
