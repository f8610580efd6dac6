"""A long table looks like the table that rich draws, whether it fits the terminal or not."""

import random

import pytest
from rich.console import Console
from rich.table import Table

from undertone.long_table import long_table

HEADS = ["starts (UTC)", "series", "mean, Wh", "95 %", "mean of min(x, θ)"]
WORDS = ["all", "all, filtered", "Süd 家", "138.5", "", "118.6 to 158.3", "137.6 ± 19.8", "a-long-name-of-a-house"]


@pytest.mark.parametrize("width", [40, 62, 75, 84, 85, 86, 87, 120])
@pytest.mark.parametrize("count", [0, 1, 2, 30])
@pytest.mark.parametrize("terminal", [False, True])
def test_it_is_the_table_of_rich(width: int, count: int, terminal: bool) -> None:
    chance = random.Random(count)
    rows = [["2027-01-24 22:30:00", *(chance.choice(WORDS) for _ in HEADS[1:])] for _ in range(count)]
    console = Console(width=width, force_terminal=terminal)
    table = Table(*HEADS, title="meters")
    table.columns[0].no_wrap = True
    for row in rows:
        table.add_row(*row)
    with console.capture() as capture:
        console.print(table)
    assert long_table(console, "meters", HEADS, rows) == capture.get()


def test_brackets_in_a_cell_are_no_markup() -> None:
    for width in (50, 120):
        assert "[bold]" in long_table(Console(width=width), "meters", HEADS, [["a", "[bold]", "c", "d", "e"]])
