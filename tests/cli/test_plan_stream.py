import json

import pytest
from typer.testing import CliRunner

from undertone.app import app
from undertone_aggregator.design.named import STREAMS
from undertone_aggregator.design.stream import plan_stream
from undertone_aggregator.settings.config import StreamPlan
from undertone_aggregator.settings.options import parse
from undertone_shared.errors import Invalid

GIVEN = {"--devices": 100_000, "--slots": 48, "--epsilon": 1, "--delta": 1e-5, "--slew": 0.05, "--movement": 0.01}


def plan(*flags, **changes):
    words = {**GIVEN, **{f"--{name}": value for name, value in changes.items()}}
    return CliRunner().invoke(
        app, ["plan", "--collect", "stream", *flags, *(str(w) for pair in words.items() for w in pair)]
    )


def lines(result):
    assert result.exit_code == 0, result.output
    return {line["method"]: line for line in json.loads(result.stdout)["lines"]}


def test_the_methods_at_equal_privacy():
    planned = lines(plan("--json"))
    # The mean v_i of Algorithm 3 at C = .05 and l = 48 is .2311.
    assert planned["direct"]["variance"] == pytest.approx(1 / 0.2311, rel=1e-3)
    # The ratio of the variances is that of Eq. 8 of Bao et al.
    assert planned["differences"]["variance"] / planned["direct"]["variance"] == pytest.approx(1 + 2 * 0.0025 * 47)
    assert planned["exact"]["variance"] == pytest.approx(0.53, abs=0.001)
    assert planned["closed-form"]["variance"] == pytest.approx(0.513, abs=0.001)
    assert planned["one-bit"]["variance"] / planned["closed-form"]["variance"] == pytest.approx(1.176, abs=0.002)
    assert planned["filter"]["variance"] < 0.43
    # The raw error is sqrt(mean v / n) times the σ of independent noise on 48 reports, which is √48 times 3.7306.
    assert planned["paper"]["raw"] == pytest.approx((0.2311 / 1e5) ** 0.5 * 48**0.5 * 3.7306, rel=1e-3)
    # On a smooth signal, smoothed independent noise is better than raw correlated noise.
    assert planned["direct"]["smoothed"] < planned["closed-form"]["raw"] < planned["direct"]["raw"]
    assert all(line["smoothed"] <= line["raw"] for line in planned.values())
    assert planned["tuned"]["smoothed"] <= 1.001 * min(
        planned["direct"]["smoothed"], planned["closed-form"]["smoothed"]
    )


def test_chi_and_sigma_of_the_papers_example_are_printed():
    """Bao et al., Eq. 9: the numbers for two reports at ε = 1 and δ = 1e-5, and for one report alone."""
    said = " ".join(plan(slots=2).stdout.split())
    assert "chi = 2.5432, and sigma = 5.2759 times the range for independent noise" in said
    alone = json.loads(plan("--per-report", "--json", slots=2).stdout)["guarantees"]
    assert any("chi = 2.5432, and sigma = 3.7306 times the range" in each for each in alone)


def test_long_sums_want_independent_noise():
    assert (
        lines(plan("--json", query="range:4"))["closed-form"]["raw"]
        < lines(plan("--json", query="range:4"))["direct"]["raw"]
    )
    planned = lines(plan("--json", query="range:24"))
    assert planned["closed-form"]["raw"] > planned["direct"]["raw"]


def test_a_budget_per_report_says_what_the_stream_costs():
    result = plan("--per-report", "--json")
    said = json.loads(result.stdout)["guarantees"]
    assert "this is no guarantee for the whole stream" in said[0]
    assert "rho = 1.7244" in said[1]
    assert lines(result)["direct"]["raw"] == pytest.approx(3.7306 / 1e5**0.5, rel=1e-3)


def test_the_table_names_guarantee_assumption_and_recommendation():
    result = plan()
    assert result.exit_code == 0
    for words in ("closed-form", "user level", "recommended:", "0.01 of the range per slot"):
        assert words in " ".join(result.stdout.split())


@pytest.mark.parametrize(
    "changes",
    [
        {"delta": 1},
        {"epsilon": 0},
        {"slew": 0.5},
        {"slew": "nan"},
        {"slew": "1/0"},
        {"slots": 0},
        {"query": "range:0"},
        {"query": "day"},
        {"devices": 0},
        {"movement": 2},
        {"chains": 49},
    ],
)
def test_bad_parameters_are_refused(changes):
    result = plan(**changes)
    assert isinstance(result.exception, Invalid), result.output


@pytest.mark.parametrize("slew", ["0.01", "0.05", "0.2"])
def test_what_is_recommended_can_be_run_by_a_campaign(slew):
    """The recommended method has the least smoothed error of those that the table [stream] of a plan accepts."""
    plan = plan_stream(devices=1000, slots=48, epsilon="1", delta="1e-5", slew=slew)
    chosen = next(line for line in plan.lines if line.method == plan.recommended)
    table = {"mechanism": chosen.mechanism, "slew": float(slew)}
    if chosen.share is not None:
        table["share"] = chosen.share
    assert parse(StreamPlan, "stream", table).mechanism == chosen.mechanism
    runs = {line.method: line.mechanism for line in plan.lines if line.mechanism is not None}
    assert sorted(runs.values()) == sorted([*STREAMS, "gaussian"])
    assert runs["tuned"] == "gaussian"
    assert chosen.smoothed == min(line.smoothed for line in plan.lines if line.mechanism is not None)
