"""What a certificate says about a mechanism, number for number, and which mechanisms it refuses."""

import json
from types import SimpleNamespace

import pytest

from support.designed import small_table
from support.refusal import refused, told
from support.server import two_epochs
from undertone_aggregator.design import certificate, window
from undertone_aggregator.design.certificate import certify_campaign, certify_mechanism, certify_named, certify_table
from undertone_aggregator.design.named import certified_as, certified_names
from undertone_shared.mechanism import WindowMechanism


def test_cells_are_those_that_a_report_can_hold() -> None:
    binary = WindowMechanism(2, 1, 1, 1, 1)
    assert certify_mechanism("small", binary, "1", 2, None).cells == len(binary.weights(0)) == 2
    # The second part of a hybrid begins after the first one's symbols.
    part = WindowMechanism(3, 1, 2, 2, 1, None, 2)
    made = certify_mechanism("part", part, "2", 2, None)
    assert made.cells == sum(weight > 0 for weight in part.weights(0)) == part.symbols - 2


def test_a_largest_variance_is_shown_where_readings_are_decoded_without_bias() -> None:
    hybrid, square_wave = (certify_named(name, "1") for name in ("hybrid", "square-wave"))
    assert hybrid.variance_worst is not None
    assert hybrid.facts()["largest variance"] == f"{hybrid.variance_worst:.4g}"
    assert hybrid.facts().keys() - square_wave.facts().keys() == {"largest variance"}


@pytest.mark.parametrize(("levels", "rows"), [(7, 8), (8, 9), (16, 9), (17, 9), (24, 9), (256, 9)])
def test_the_table_of_moments_has_few_rows_and_the_ends(levels: int, rows: int) -> None:
    made = certify_named("hybrid", "1", levels)
    lines = made.lines()
    assert lines[0].split(": ")[1] == ", ".join(
        f"{key} {made.summary()[key]}" for key in made.summary() if key != "kind"
    )
    table = lines[lines.index(next(line for line in lines if "level" in line and "ratio" in line)) + 1 : -2]
    assert len(table) == rows
    assert any("exact, by summation over the weights" in line for line in lines)
    assert made.levels is not None
    step = max(1, (levels + 1) // 8)
    for line, level in zip(table, made.levels[::step], strict=True):
        number, mean, variance, continuous, ratio = line.split()
        assert (int(number), float(mean)) == (level.level, pytest.approx(float(level.mean), abs=1e-6))
        assert float(variance) == pytest.approx(float(level.variance), abs=1e-6)
        assert float(variance) / float(continuous) == pytest.approx(float(ratio), abs=1e-5)


@pytest.mark.parametrize(("bins", "shown"), [(3, [0, 1, 2, 3]), (4, [0, 1, 2, 3, 4]), (5, "6 integers")])
def test_long_lists_are_shown_by_their_length(bins: int, shown: object) -> None:
    assert certify_named("square-wave", "1", bins=bins).summary()["edges"] == shown


def table(theta: int, decoded: list[int]) -> bytes:
    described = small_table(0).describe()
    return json.dumps({"mechanism": described, "theta": theta, "decoded": decoded, "denominator": 1}).encode()


@pytest.mark.parametrize("theta", [1, (1 << 30) - 1])
def test_the_ends_of_theta_are_taken_and_nothing_beyond(theta: int) -> None:
    with pytest.raises(certificate.audit.NotCertified, match="mean"):
        certify_table(table(theta, [0, 0, 0, 0, 0]), "2")
    beyond = 0 if theta == 1 else 1 << 30
    with refused("theta", beyond, 1, 1073741823):
        certify_table(table(beyond, [0, 0, 0, 0, 0]), "2")


@pytest.mark.parametrize("sign", [-1, 1])
def test_the_ends_of_a_decode_are_taken_and_nothing_beyond(sign: int) -> None:
    end = sign << 62
    with pytest.raises(certificate.audit.NotCertified, match="mean"):
        certify_table(table(1, [end, 0, 0, 0, 0]), "2")
    with refused(0, end + sign, -1 << 62, 1 << 62):
        certify_table(table(1, [end + sign, 0, 0, 0, 0]), "2")


def test_a_kind_of_rule_that_nobody_certifies_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    rule = SimpleNamespace(rule=SimpleNamespace(kind="sketch"))
    monkeypatch.setattr(certificate, "Campaign", lambda _: rule)
    with refused("kind", "'sketch'", "scalar", "stream"):
        certify_campaign(b"{}", "1")


def test_a_certificate_names_the_range_that_its_moments_are_for() -> None:
    """For a table with its decode, that is the table's θ. For other mechanisms it is 2, the width of [-1, 1]."""
    for name in certified_names():
        sized = {certified_as(name).sized: 8} if certified_as(name).sized else {}
        assert certify_named(name, "1", **sized).theta == (1000 if name == "optimal" else 2)
    assert certify_table(json.dumps(small_table(0).describe()).encode(), "2").theta == 2
    assert certify_table(table(12, list(small_table(0).decoded[0])), "2").theta == 12


def test_a_day_has_48_reports_and_a_square_wave_128_bins_unless_told() -> None:
    made = certify_named("square-wave", "1")
    assert made.mechanism.describe() == window.square_wave("1", range(129)).describe()
    assert made.as_json()["epsilon_per_day"] == 48 * made.epsilon_achieved
    assert certify_named("piecewise", "1").mechanism.levels == 256
    assert told("\n".join(made.lines()), 48, f"{48 * made.epsilon_achieved:.6g}")


@pytest.mark.parametrize("name", ["stochastic-rounding", "piecewise", "piecewise-optimal", "hybrid", "optimal"])
def test_the_worst_ratio_is_of_each_level_but_for_best_windows_and_tables(name: str) -> None:
    """For best windows and tables, the ratio is that of the two worst variances."""
    made = certify_named(name, "1", None if name == "stochastic-rounding" else 8)
    assert made.levels is not None
    assert made.formula is not None
    worst = float(max(level.variance for level in made.levels))
    assert made.variance_worst == worst
    if name in ("piecewise-optimal", "optimal"):
        assert made.variance_ratio_worst == worst / made.formula(1)
    else:
        ratios = [float(level.variance) / made.formula(float(level.reading)) for level in made.levels]
        assert made.variance_ratio_worst == max(ratios)


@pytest.mark.parametrize(
    ("changes", "facts"),
    [
        ({"mechanism": window.hybrid("1", 4).describe()}, ("mechanism", "table")),
        ({"decoded": {"0": 1}}, ("decoded", "{'0': 1}")),
        ({"denominator": 0}, ("denominator", 0, 1, 1 << 62)),
        ({"denominator": (1 << 62) + 1}, ("denominator", (1 << 62) + 1, 1, 1 << 62)),
    ],
)
def test_a_decode_that_is_none_is_refused(changes: dict[str, object], facts: tuple[object, ...]) -> None:
    fields = json.loads(table(12, list(small_table(0).decoded[0])))
    with refused(*facts):
        certify_table(json.dumps({**fields, **changes}).encode(), "2")


def test_the_ends_of_a_denominator_are_taken() -> None:
    fields = json.loads(table(12, [0, 0, 0, 0, 0]))
    for denominator in (1, 1 << 62):
        with pytest.raises(certificate.audit.NotCertified, match="mean"):
            certify_table(json.dumps({**fields, "denominator": denominator}).encode(), "2")


def test_both_mechanisms_of_a_campaign_are_certified_over_their_own_range() -> None:
    learning, reporting = two_epochs()
    (only,) = certify_campaign(learning.campaign.body, "4")
    assert (only.name, only.levels) == ("cohort", None)
    cohort, report = certify_campaign(reporting.campaign.body, "4")
    assert (cohort.name, cohort.levels, cohort.theta) == ("cohort", None, 2)
    assert (report.name, report.theta) == ("report", 500)
    assert report.levels is not None
