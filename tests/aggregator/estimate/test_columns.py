"""Estimates by column and estimates by row turn into each other without a change."""

import math
from dataclasses import replace

import numpy as np

from support.rows import alike
from undertone_aggregator.estimate.estimates import ABSENT, MEASURED, MODEL, Estimate, Estimates, Load, Series

ROWS = [
    Estimate(5, 50, Series("north"), MEASURED, 9, 1, 4.0, 2.0, 0.1, 7.9, 700, 1.5, 0.5, 0.25, 3.0),
    Estimate(4, 40, Series("all", 2, True), MEASURED, 8, 0, 4.5, 2.5, -0.4, 9.4, 700, carried=0.5),
    Estimate(4, 40, Series("all"), MODEL, 0, 80, math.nan, None, None, None, None, model=33.0),
    Estimate(3, 30, Series("north"), ABSENT, 0, 0, math.nan, None, None, None, None),
]


def test_rows_come_back() -> None:
    table = Estimates.of(ROWS)
    assert alike(table, ROWS)
    assert alike([table[place] for place in (0, 3, -1)], [ROWS[0], ROWS[3], ROWS[3]])
    assert alike(table[1:3], ROWS[1:3])
    assert Estimates.of(table) is table
    assert list(Estimates.of([])) == []


def test_columns_are_the_rows_columns() -> None:
    table = Estimates.of(ROWS).table()
    assert tuple(table) == Estimate.columns()
    assert Estimate.table(ROWS) == table
    for place, row in enumerate(ROWS):
        cells = {name: values[place] for name, values in table.items()}
        assert cells == row.row()
        assert alike([Estimate.of_row(cells)], [row])
        number = row.kind == MEASURED
        assert cells["truncated_mean"] == (row.truncated_mean if number else None)
        assert cells["truncated_se"] == row.truncated_se
    assert [type(value) for value in table["theta"]] == [int, int, type(None), type(None)]


def test_rows_of_several_tables_are_sorted_by_slot_and_series() -> None:
    both = Estimates.together([Estimates.of(ROWS[:2]), Estimates.of(ROWS[2:])])
    assert alike(both, sorted(ROWS, key=lambda row: (row.slot, row.series)))
    assert len(Estimates.together([])) == 0


def test_a_load_has_the_fields_of_one_row() -> None:
    table = Estimates.of(ROWS[:2])
    bias, bias_se = np.array([2.0, np.nan]), np.array([1.5, np.nan])
    rows = list(table.with_load(np.array([10.0, 20.0]), np.array([2.0, 3.0]), bias, bias_se))
    for row, load in zip(rows, (Load.of(10.0, 2.0, 2.0, 1.5), Load.of(20.0, 3.0)), strict=True):
        assert [getattr(row, name) for name in Load._fields] == list(load)


def test_columns_equal_any_sequence_of_the_same_rows() -> None:
    table = Estimates.of(ROWS)
    assert table == Estimates.of(ROWS) == ROWS
    assert ROWS == table != ROWS[:3]
    assert table != [*ROWS[:3], replace(ROWS[3], slot=7)]
    assert table != ["slot"]
