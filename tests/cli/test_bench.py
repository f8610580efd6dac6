import json

import pytest
from typer.testing import CliRunner

from undertone.app import app
from undertone_shared.errors import Invalid
from undertone_studies.commands.bench import lines
from undertone_studies.registry import BENCHMARKS, StudyOptions
from undertone_studies.row import Measured, duration, rate

COLUMNS = {"name", "value", "unit", "baseline", "baseline_value", "ratio", "goal"}


@pytest.mark.slow
def test_mechanisms_as_json():
    result = CliRunner().invoke(app, ["bench", "mechanisms", "--quick", "--json"])
    assert result.exit_code == 0, result.output
    rows = json.loads(result.stdout)
    assert all(row.keys() == COLUMNS for row in rows)
    beside_floats = [row for row in rows if row["baseline"] == "hybrid in floating point, numpy"]
    assert [row["goal"] for row in beside_floats if "vectorised" in row["name"]] == [None, None]
    assert all(row["value"] > 0 for row in rows)


def test_every_benchmark_is_known():
    assert "mechanisms" in BENCHMARKS.names()
    with pytest.raises(Invalid, match=r"there is no benchmark 'nothing', expected one of .*mechanisms"):
        BENCHMARKS.run("nothing", StudyOptions())


def test_a_ratio_above_one_is_better():
    assert rate("a", 3.0, "1/s", "b", 2.0).ratio == 1.5
    assert duration("a", 2.0, "s", "b", 3.0, goal=1.2).ratio == 1.5


def test_table_columns_line_up():
    shown = lines([Measured("a", 1.0, "s"), rate("longer", 30.0, "1/s", "other", 20.0, 1.2)])
    assert shown[1] == "a       1      s"
    assert shown[0].index("goal") == shown[2].index("1.2")


def test_the_float_baseline_is_the_hybrid_mechanism():
    import numpy as np

    from undertone_aggregator.design.continuous import hybrid_variance
    from undertone_studies.bench.mechanisms import FloatHybrid

    # Mean and variance of 2^18 draws are within 6 standard errors.
    n = 1 << 18
    out = np.empty(n)
    for epsilon, x in ((1, 0.3), (4, -1.0)):
        FloatHybrid(epsilon, 1000).draw(np.full(n, x), out)
        variance = hybrid_variance(epsilon, x)
        assert abs(out.mean() - x) < 6 * (variance / n) ** 0.5
        squares = np.square(out - x)
        assert abs(squares.mean() - variance) < 6 * squares.std() / n**0.5


def test_a_run_too_short_for_its_clock_has_no_ratio():
    """The processor time of other processes is counted in steps of 10 ms, so a short run may show none."""
    assert duration("10 reports", 0.0, "CPU µs/report", "before", 30.0).ratio is None
    assert rate("10 reports", 30.0, "reports/s", "before", 0.0).ratio is None
    assert duration("10 reports", 20.0, "CPU µs/report", "before", 30.0).ratio == 1.5
