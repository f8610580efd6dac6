"""Tables of thousands of rows for the terminal. They look as if the library rich drew them, but take far less time."""

from collections.abc import Sequence

from rich.box import HEAVY_HEAD
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text


def long_table(console: Console, title: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table as text. The first column never wraps; the others wrap if the table is wider than the console.

    rich measures, wraps and styles every cell, which takes long for many rows. The widths of its columns depend
    on each column's longest cell and longest word alone. So rich only lays out the rows with these cells and words, and
    draws the rows that wrap. Every other row is one padded line.
    """
    longest = [max(rows, key=lambda row: cell_len(row[i])) for i in range(len(heads)) if rows]
    longest += [max(rows, key=lambda row: _word(row[i])) for i in range(len(heads)) if rows]
    frame = Table(*heads, title=title)
    frame.columns[0].no_wrap = True
    lines = _drawn(console, frame, longest)
    box = HEAVY_HEAD.substitute(console.options)
    first = next(number for number, line in enumerate(lines) if box.head_row_left in line) + 1
    foot = lines[-1]
    widths = [len(part) - 2 for part in foot.strip(box.bottom_left + box.bottom_right).split(box.bottom_divider)]
    body: list[str] = []
    for row in rows:
        if all(cell_len(cell) <= width and "\n" not in cell for cell, width in zip(row, widths, strict=True)):
            cells = [cell + " " * (width - cell_len(cell)) for cell, width in zip(row, widths, strict=True)]
            body.append(f"{box.mid_left} {f' {box.mid_vertical} '.join(cells)} {box.mid_right}")
        else:
            wrapped = Table(show_header=False)
            for number, width in enumerate(widths):
                wrapped.add_column(width=width, no_wrap=number == 0)
            body += _drawn(console, wrapped, [row])[1:-1]
    return "\n".join([*lines[:first], *body, foot, ""])


def _word(text: str) -> int:
    return max(map(cell_len, text.split()), default=0)


def _drawn(console: Console, table: Table, rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table with these rows."""
    for row in rows:
        table.add_row(*map(Text, row))
    with console.capture() as capture:
        console.print(table)
    return capture.get().removesuffix("\n").split("\n")
