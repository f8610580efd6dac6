"""A release as text: a first line with all that is public about it, then comma-separated rows, then more of them.

    # undertone release {"mechanism": "tops", …, "guarantee": "…"}
    position,value
    # piece {"first": 65536, "theta": 51}
    65536,7

A piece begins wherever θ changes; positions count the values of the stream from 0.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from undertone_central.continual import Continual
from undertone_central.noise import Integers
from undertone_central.ranges import Piece
from undertone_shared.errors import Invalid

TITLE = "# undertone release "
PIECE = "# piece "
COLUMNS = {"values": "position,value", "counts": "position,count", "nodes": "first,end,sum", "items": "block,item"}


def heading(mechanism: Continual) -> str:
    """The first two lines."""
    public = {**mechanism.parameters, "guarantee": mechanism.guarantee}
    public.pop("theta", None)
    return f"{TITLE}{json.dumps(public, ensure_ascii=False)}\n{COLUMNS[mechanism.released]}\n"


def piece_line(first: int, theta: int) -> str:
    """The beginning of a piece."""
    return f"{PIECE}{json.dumps({'first': first, 'theta': theta})}\n"


def rows(parameters: dict[str, Any], first: int, start: int, numbers: Integers) -> list[str]:
    """Lines of these numbers; ``first``: position of the piece's first value, ``start``: of theirs (items: block)."""
    kind = parameters["released"]
    if kind in ("values", "counts"):
        return [f"{position},{number}\n" for position, number in enumerate(numbers.tolist(), start)]
    if kind == "items":
        size = parameters["kept_items"]
        return [f"{start + i // size},{number}\n" for i, number in enumerate(numbers.tolist())]
    return [f"{a},{b},{n}\n" for (a, b), n in zip(_spans(parameters, first, start), numbers.tolist(), strict=False)]


def _spans(parameters: dict[str, Any], first: int, start: int) -> Iterable[tuple[int, int]]:
    """[first, end) of the nodes that close from position ``start`` on, without end."""
    end = start
    while True:
        end += 1
        width = 1
        for _ in range(parameters["levels"]):
            if (end - first) % width == 0:
                yield end - width, end
            width *= parameters["fanout"]


def read(path: Path) -> tuple[dict[str, Any], list[Piece]]:
    """The parameters and the pieces of a release. Raises Invalid for any other file, OSError."""
    pieces: list[tuple[int, int, list[int]]] = []
    with path.open(encoding="utf-8") as lines:
        first = next(lines, "")
        if not first.startswith(TITLE):
            raise Invalid(f"{path.name} is not a release: its first line does not begin with {TITLE.strip()!r}")
        number = 1
        try:
            parameters = json.loads(first[len(TITLE) :])
            next(lines, "")
            number = 2
            for line in lines:
                number += 1
                if line.startswith(PIECE):
                    piece = json.loads(line[len(PIECE) :])
                    pieces.append((piece["first"], piece["theta"], []))
                else:
                    pieces[-1][2].append(int(line.rpartition(",")[2]))
        except (ValueError, KeyError, IndexError, TypeError):
            raise Invalid(f"{path.name}, line {number + 1} is not what a release holds") from None
    return parameters, [Piece(a, theta, np.array(n, dtype=np.int64)) for a, theta, n in pieces]
