"""Write the figures of docs/results into the guides; a test compares them.

python scripts/figures.py     updates every marked figure of the guides from docs/results

A figure is a link to its study's table: ``the error is [15][day-1] %``. The page's last lines say which cell it is:
``[day-1]: results/day.csv "devices=1000; predicted error, %"``. The title holds conditions and then the wanted column.
The figure is that column's cell in the first row that meets the conditions, rounded to as many digits as are shown.
A condition is ``column=value``, or a comparison with ``<``, ``>``, ``<=``, ``>=``, which no empty cell meets.
``max column``, ``min column`` and ``mean column`` are over all rows that meet the conditions (``column`` may be a
pattern: ``ε = *``), ``count`` is how many there are, ``column[2]`` is the second number of ``1.2 / 3.4 (5)``.

A table under a line ``[Figures][theta-1] of the study:`` has a title ``table: condition; column; column``. The
table's heading has columns of the study. The cells under those that the title names find the study's row, among the
rows that meet the conditions. The other cells are written from this row.
"""

import fnmatch
import json
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from statistics import fmean

REPO = Path(__file__).parents[1]
RESULTS = REPO / "docs" / "results"
# The guides: the pages directly in docs, and the README files.
PAGES = [*sorted((REPO / "docs").glob("*.md")), REPO / "README.md", *sorted(REPO.glob("*/README.md"))]

Cell = str | int | float
Row = Mapping[str, Cell]

# Where a page says which cell a figure, or which rows a table, is made from.
DEFINITION = re.compile(
    r'^\[(?P<name>[\w-]+)\]: (?:\S*/)?results/(?P<study>[\w-]+)\.csv "(?P<where>.*)"$', re.MULTILINE
)
FIGURE = re.compile(
    r"\[(?P<shown>[-+]?(?:\d[\d,]*\d|\d)(?:\.\d+)?(?:e[-+]?\d+)?|[-+]?\.\d+)\]\[(?P<name>[a-z][\w-]*-\d+)\]"
)
TABLE = re.compile(
    r"(?P<mark>^\[Figures\]\[(?P<name>[\w-]+)\].*\n\n)"
    r"(?P<heads>\|.*\|\n)(?P<rule>\|[-|]+\|\n)(?P<body>(?:\|.*\|\n)+)",
    re.MULTILINE,
)
_NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?")
_COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
}


@cache
def rows_of(study: str) -> tuple[Row, ...]:
    """Return a study's rows. Raises OSError."""
    return tuple(json.loads((RESULTS / f"{study}.json").read_text("utf-8"))["rows"])


def refreshed(text: str) -> tuple[str, set[str]]:
    """Return the text with the results' figures, and the names of the definitions that it uses.

    Raises OSError if there is no such study, LookupError for a figure without a definition and if the study has no such
    row, column or number, ValueError if a condition compares with what is no number and for ``column[0]``.
    """
    cells = {match["name"]: (match["study"], match["where"]) for match in DEFINITION.finditer(text)}
    used = set()

    def cell(match: re.Match[str]) -> tuple[str, str]:
        if match["name"] not in cells:
            raise LookupError(f"the page has no definition of [{match['name']}]")
        used.add(match["name"])
        return cells[match["name"]]

    text = FIGURE.sub(lambda match: f"[{_figure(*cell(match), match['shown'])}][{match['name']}]", text)
    text = TABLE.sub(lambda match: match["mark"] + match["heads"] + match["rule"] + _body(*cell(match), match), text)
    return text, used


def _figure(study: str, where: str, shown: str) -> str:
    *conditions, wanted = [part.strip() for part in where.split(";")]
    rows = _meeting(rows_of(study), conditions, f"{study} {where}")
    if wanted == "count":
        return _styled(len(rows), shown)
    reductions: dict[str, Callable[[list[float]], float]] = {"max": max, "min": min, "mean": fmean}
    reduced = reductions.get(wanted.partition(" ")[0])
    if reduced is None:
        return _styled(_number(rows[0], wanted), shown)
    name, opening, place = wanted.partition(" ")[2].partition("[")
    columns = fnmatch.filter(rows[0], name)
    return _styled(reduced([_number(row, column + opening + place) for row in rows for column in columns]), shown)


def _body(study: str, where: str, match: re.Match[str]) -> str:
    parts = [part.strip() for part in where.removeprefix("table:").split(";")]
    heads = _cells(match["heads"])
    keys = [part for part in parts if part in heads]
    where = f"{study} {where}"
    chosen = _meeting(rows_of(study), [part for part in parts if part not in keys], where)
    lines = []
    for line in match["body"].splitlines():
        shown = dict(zip(heads, _cells(line), strict=True))
        (row, *_) = _meeting(chosen, [f"{key}={shown[key]}" for key in keys], where)
        texts = [shown[head] if head in keys else _text(row[head], shown[head]) for head in heads]
        lines.append("| " + " | ".join(texts) + " |\n")
    return "".join(lines)


def _text(cell: Cell, shown: str) -> str:
    return cell if isinstance(cell, str) else _styled(cell, shown)


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def _meeting(rows: Sequence[Row], conditions: Sequence[str], where: str) -> list[Row]:
    """Return the rows that meet the conditions. Raises LookupError if there are none."""
    chosen = [row for row in rows if all(_meets(row, condition) for condition in conditions)]
    if not chosen:
        raise LookupError(f"there is no row for {where}")
    return chosen


def _meets(row: Row, condition: str) -> bool:
    # Names of columns and values may contain such signs, too.
    for sign in re.finditer("<=|>=|<|>|=", condition):
        column, value = condition[: sign.start()].strip(), condition[sign.end() :].strip()
        if column.partition("[")[0] in row:
            if sign[0] == "=":
                cell = row[column] if column in row else _number(row, column)
                return str(cell) == value or (not isinstance(cell, str) and _same(cell, value))
            return row.get(column) != "" and _COMPARISONS[sign[0]](_number(row, column), float(value))
    raise LookupError(f"{condition} names none of the columns {', '.join(row)}")


def _same(cell: float, value: str) -> bool:
    try:
        return float(value) == cell
    except ValueError:
        return False


def _number(row: Row, column: str) -> float:
    """Return a cell's number: the k-th for ``column[k]``, else the first."""
    name, _, place = column.rstrip("]").partition("[") if column not in row else (column, "", "")
    cell = row[name]
    if not isinstance(cell, str):
        return float(cell)
    if place == "0":
        raise ValueError(f"{column}: numbers of a cell are counted from 1")
    return float(_NUMBER.findall(cell)[int(place or 1) - 1])


def _styled(value: float, shown: str) -> str:
    """Return ``value`` in the style of ``shown``: digits, exponent, commas, leading zero or none."""
    mantissa, exponential, _ = shown.partition("e")
    digits = len(mantissa.partition(".")[2])
    if exponential:
        mantissa, _, exponent = f"{value:.{digits}e}".partition("e")
        return f"{mantissa}e{int(exponent)}"
    text = f"{value:,.{digits}f}" if "," in shown or (not digits and value >= 1e4) else f"{value:.{digits}f}"
    return re.sub(r"^([-+]?)0(?=\.)", r"\1", text) if re.match(r"[-+]?\.", shown) else text


def main() -> None:
    """Update the figures of every guide and print the names of the changed guides."""
    for page in PAGES:
        before = page.read_text("utf-8")
        after, _ = refreshed(before)
        if after != before:
            page.write_text(after, "utf-8")
            print(f"{page.relative_to(REPO)}: figures brought up to date")


if __name__ == "__main__":
    main()
