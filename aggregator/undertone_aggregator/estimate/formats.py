"""The table of output formats, for commands, exports and the page's downloads. A new format is a line in `FORMATS`."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from undertone_shared.errors import Invalid

if TYPE_CHECKING:
    from undertone_aggregator.estimate.estimates import Row
    from undertone_aggregator.estimate.query import Results

# Largest number of rows that a format gets as one piece.
_ROWS = 4096


@dataclass(frozen=True)
class Format:
    """An output format.

    ``module``, ``function``: name the function that writes rows of one kind. It is called with (results, pieces, kind),
    and yields bytes; ``pieces`` are sequences of rows, one after the other. ``binary``: True if a terminal cannot show
    the file.
    """

    media_type: str
    suffix: str
    module: str
    function: str
    binary: bool = False

    def pieces(self, results: "Results", pieces: "Iterable[Sequence[Row]]", kind: "type[Row]") -> Iterator[bytes]:
        """Yield the parts of a file of this format with rows of one kind. Raises Invalid if a package is missing."""
        function: Any = getattr(import_module(self.module), self.function)
        small = (rows[at : at + _ROWS] for rows in pieces for at in range(0, len(rows), _ROWS))
        yield from function(results, small, kind)

    def write(self, results: "Results", rows: "Sequence[Row]", kind: "type[Row]") -> bytes:
        """Return rows of one kind as a file of this format. Raises Invalid if a package is missing."""
        return b"".join(self.pieces(results, [rows], kind))


_EXPORT = "undertone_aggregator.estimate.export"

FORMATS = {
    "csv": Format("text/csv", "csv", _EXPORT, "to_csv"),
    "jsonl": Format("application/x-ndjson", "jsonl", _EXPORT, "to_json_lines"),
    "parquet": Format("application/vnd.apache.parquet", "parquet", _EXPORT, "to_parquet", binary=True),
    "influx": Format("text/plain", "influx", _EXPORT, "to_influx"),
}


def format_of(field: str, word: str, others: Sequence[str] = ()) -> Format:
    """Return the format of this name. Raises Invalid for another name; the error lists all names, and those in
    ``others``.
    """
    if word not in FORMATS:
        raise Invalid(f"{field} is {word!r}, expected one of {', '.join([*others, *FORMATS])}")
    return FORMATS[word]
