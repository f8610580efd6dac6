"""What a certificate says of a mechanism, number for number, and what it refuses to certify."""

import json
from types import SimpleNamespace

import pytest

from support.designed import small_table
from undertone_aggregator.design import certificate
from undertone_aggregator.design.certificate import certify_campaign, certify_mechanism, certify_named, certify_table
from undertone_shared.errors import Invalid
from undertone_shared.mechanism import WindowMechanism


def test_cells_are_those_that_a_report_can_hold() -> None:
    binary = WindowMechanism(2, 1, 1, 1, 1)
    assert certify_mechanism("small", binary, "1", 2, None).cells == len(binary.weights(0)) == 2
    # The second part of a hybrid begins after the first one's symbols.
    part = WindowMechanism(3, 1, 2, 2, 1, None, 2)
    made = certify_mechanism("part", part, "2", 2, None)
    assert made.cells == sum(weight > 0 for weight in part.weights(0)) == part.symbols - 2


@pytest.mark.parametrize(("levels", "rows"), [(7, 8), (8, 9), (16, 9), (17, 9), (24, 9), (256, 9)])
def test_the_table_of_moments_has_few_rows_and_the_ends(levels: int, rows: int) -> None:
    made = certify_named("hybrid", "1", levels)
    lines = made.lines()
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
    with pytest.raises(certificate.audit.NotCertified, match="the weights give the mean"):
        certify_table(table(theta, [0, 0, 0, 0, 0]), "2")
    beyond = 0 if theta == 1 else 1 << 30
    with pytest.raises(Invalid, match=f"theta is {beyond}, expected an integer from 1 to 1073741823"):
        certify_table(table(beyond, [0, 0, 0, 0, 0]), "2")


@pytest.mark.parametrize("sign", [-1, 1])
def test_the_ends_of_a_decode_are_taken_and_nothing_beyond(sign: int) -> None:
    end = sign << 62
    with pytest.raises(certificate.audit.NotCertified, match="the weights give the mean"):
        certify_table(table(1, [end, 0, 0, 0, 0]), "2")
    with pytest.raises(
        Invalid, match=rf"decoded\[0\] is {end + sign}, expected an integer from {-1 << 62} to {1 << 62}"
    ):
        certify_table(table(1, [end + sign, 0, 0, 0, 0]), "2")


def test_a_kind_of_rule_that_nobody_certifies_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    rule = SimpleNamespace(rule=SimpleNamespace(kind="sketch"))
    monkeypatch.setattr(certificate, "Campaign", lambda _: rule)
    with pytest.raises(Invalid, match="the campaign's rule has kind 'sketch', expected one of scalar, stream"):
        certify_campaign(b"{}", "1")
