"""Estimates as a table in Markdown: an output format that the product does not have."""

from collections.abc import Iterable, Iterator, Sequence

from undertone_aggregator.estimate.estimates import Row
from undertone_aggregator.estimate.query import Results


def to_markdown(results: Results, pieces: Iterable[Sequence[Row]], kind: type[Row]) -> Iterator[bytes]:
    """Yield rows of one kind as a table, with an empty cell for a missing value."""
    names = kind.columns()
    yield _line(names) + _line(["---"] * len(names))
    for rows in pieces:
        for cells in zip(*kind.table(rows).values(), strict=True):
            yield _line(["" if cell is None else str(cell) for cell in cells])


def _line(cells: Sequence[str]) -> bytes:
    return f"| {' | '.join(cells)} |\n".encode()
