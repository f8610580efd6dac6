"""The table of output formats, for commands, exports and the page's downloads. A new format is a line in `FORMATS`."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from undertone_shared.errors import Invalid

if TYPE_CHECKING:
    from undertone_aggregator.estimate.estimates import Row
    from undertone_aggregator.estimate.query import Results


@dataclass(frozen=True)
class Format:
    """An output format.

    ``module``, ``function``: what writes rows of one kind, called with (results, rows, kind), and returns bytes.
    ``binary``: true if a terminal cannot show the file.
    """

    media_type: str
    suffix: str
    module: str
    function: str
    binary: bool = False

    def write(self, results: "Results", rows: "Sequence[Row]", kind: "type[Row]") -> bytes:
        """Return rows of one kind as a file of this format. Raises Invalid if a package is missing."""
        function: Any = getattr(import_module(self.module), self.function)
        content: bytes = function(results, rows, kind)
        return content


_EXPORT = "undertone_aggregator.estimate.export"

FORMATS = {
    "csv": Format("text/csv", "csv", _EXPORT, "to_csv"),
    "jsonl": Format("application/x-ndjson", "jsonl", _EXPORT, "to_json_lines"),
    "parquet": Format("application/vnd.apache.parquet", "parquet", _EXPORT, "to_parquet", binary=True),
    "influx": Format("text/plain", "influx", _EXPORT, "to_influx"),
}


def format_of(field: str, word: str, others: Sequence[str] = ()) -> Format:
    """Return the format of this name. Raises Invalid for another name; the error lists the names, also ``others``."""
    if word not in FORMATS:
        raise Invalid(f"{field} is {word!r}, expected one of {', '.join([*others, *FORMATS])}")
    return FORMATS[word]
