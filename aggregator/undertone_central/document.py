"""A release as text: a line with public parameters, a line of column names, then pieces of comma-separated rows.

    # undertone release {"mechanism": "tops", …, "guarantee": "…"}
    position,value
    # piece {"first": 65536, "theta": 51, "group": 4096, "fanout": 16, "levels": 2}
    65536,7

Within a piece, θ and the hierarchy are constant; a new piece begins whenever θ is chosen. Positions number the values
of the stream from 0.
"""

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from undertone_central.mechanisms.continual import Continual
from undertone_central.noise.laplace import Integers
from undertone_central.ranges import Piece
from undertone_shared.errors import Invalid

TITLE = "# undertone release "
PIECE = "# piece "
# Names of the parameters that describe the hierarchy over the blocks of a piece of values.
PIECES = ("group", "fanout", "levels")
COLUMNS = {"values": "position,value", "counts": "position,count", "nodes": "first,end,sum", "items": "block,item"}


def heading(mechanism: Continual) -> str:
    """Return the first two lines of a release."""
    public = {**mechanism.parameters, "guarantee": mechanism.guarantee}
    for name in ("theta", *(PIECES if mechanism.released == "values" else ())):
        # θ and the hierarchy's parameters belong to a piece and not to the whole release.
        public.pop(name, None)
    return f"{TITLE}{json.dumps(public, ensure_ascii=False)}\n{COLUMNS[mechanism.released]}\n"


def piece_line(first: int, parameters: dict[str, Any]) -> str:
    """Return the first line of a piece: position of its first value, θ and, for values, the hierarchy of their
    blocks.
    """
    piece = {"first": first, "theta": parameters.get("theta", parameters["bound"])}
    if parameters["released"] == "values":
        piece |= {name: parameters[name] for name in PIECES}
    return f"{PIECE}{json.dumps(piece)}\n"


def rows(parameters: dict[str, Any], first: int, start: int, numbers: Integers) -> list[str]:
    """Return the lines of a release that contain these numbers.

    ``first``: position of the piece's first value. ``start``: position of the first value for which these numbers are
    released; for items, the number of the first block.
    """
    kind = parameters["released"]
    if kind in ("values", "counts"):
        return [f"{position},{number}\n" for position, number in enumerate(numbers.tolist(), start)]
    if kind == "items":
        size = parameters["kept_items"]
        return [f"{start + i // size},{number}\n" for i, number in enumerate(numbers.tolist())]
    return [f"{a},{b},{n}\n" for (a, b), n in zip(_spans(parameters, first, start), numbers.tolist(), strict=False)]


def _spans(parameters: dict[str, Any], first: int, start: int) -> Iterable[tuple[int, int]]:
    """Yield the span [first, end) of each node that closes from position ``start`` on, without end."""
    end = start
    while True:
        end += 1
        width = 1
        for _ in range(parameters["levels"]):
            if (end - first) % width == 0:
                yield end - width, end
            width *= parameters["fanout"]


def read(path: Path) -> tuple[dict[str, Any], list[Piece]]:
    """Read the parameters and the pieces of a release. Raises Invalid for a file that is no release, OSError."""
    pieces: list[tuple[Piece, list[np.int64]]] = []
    with path.open(encoding="utf-8", errors="replace") as lines:
        first = next(lines, "")
        if not first.startswith(TITLE):
            raise Invalid(f"{path.name} is not a release: its first line does not begin with {TITLE.strip()!r}")
        number = 1
        try:
            parameters = json.loads(first[len(TITLE) :])
            if not isinstance(parameters, dict):
                raise TypeError
            next(lines, "")
            number += 1
            for line in lines:
                number += 1
                if not line.endswith("\n"):
                    # An unfinished line is being written, or was cut by a power failure. It is ignored, because part of
                    # a number would be read as another number.
                    break
                if line.startswith(PIECE):
                    pieces.append((Piece(numbers=np.zeros(0, dtype=np.int64), **json.loads(line[len(PIECE) :])), []))
                else:
                    pieces[-1][1].append(np.int64(int(line.rpartition(",")[2])))
            read_pieces = [replace(piece, numbers=np.array(numbers, dtype=np.int64)) for piece, numbers in pieces]
        except (ValueError, KeyError, IndexError, TypeError, OverflowError):
            raise Invalid(f"{path.name}, line {number} is not a line of a release") from None
    return parameters, read_pieces
