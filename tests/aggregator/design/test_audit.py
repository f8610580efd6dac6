"""The audit compares what a mechanism states with its weights, in each row, column and level."""

from fractions import Fraction

import pytest

from support.refusal import refused
from undertone_aggregator.design import audit, mechanisms
from undertone_shared.mechanism import WindowMechanism


class Altered(WindowMechanism):
    """A mechanism with one wrong weight: that of ``symbol_off`` at ``level_off`` is larger by one."""

    level_off = 0
    symbol_off = 0

    def weights(self, level: int) -> list[int]:
        row = super().weights(level)
        row[self.symbol_off] += level == self.level_off
        return row


class Claiming(WindowMechanism):
    """A mechanism that states a wrong variance at one level."""

    level_off = 0

    def variance(self, level: int, theta: int) -> tuple[int, int]:
        numerator, denominator = super().variance(level, theta)
        return numerator + (level == self.level_off), denominator


@pytest.fixture(autouse=True)
def _known(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in (Altered, Claiming):
        monkeypatch.setitem(mechanisms.TABLE, kind, mechanisms.TABLE[WindowMechanism])


LEVELS = 4


@pytest.mark.parametrize("level", range(LEVELS + 1))
def test_a_weight_that_is_off_is_found_at_every_level(level: int) -> None:
    made = Altered(7, 3, 5, 2, LEVELS)
    made.level_off = level
    with refused(level, made.total + 1, error=audit.NotCertified):
        audit.check_rows(made)
    with pytest.raises(audit.NotCertified, match=f"level {level} stands for"):
        audit.exact_levels(made, 2)
    audit.check_rows(WindowMechanism(7, 3, 5, 2, LEVELS))


@pytest.mark.parametrize("level", range(LEVELS + 1))
def test_a_closed_form_that_is_off_is_found_at_every_level(level: int) -> None:
    made = Claiming(7, 3, 5, 2, LEVELS)
    made.level_off = level
    with pytest.raises(audit.NotCertified, match=f"at level {level} the weights give the variance"):
        audit.exact_levels(made, 2)


@pytest.mark.parametrize("level", range(LEVELS + 1))
@pytest.mark.parametrize("symbol", [0, 6, 12])
def test_the_certificate_is_over_every_level_of_every_column(level: int, symbol: int) -> None:
    made = Altered(7, 3, 5, 2, LEVELS)
    made.level_off, made.symbol_off = level, symbol
    columns = list(zip(*(made.weights(each) for each in range(LEVELS + 1)), strict=True))
    worst = max(Fraction(max(column), min(column)) for column in columns)
    if worst == Fraction(7, 3):
        assert audit.checked_ratio(made, (8, 3)) == worst
    else:
        with pytest.raises(
            audit.NotCertified, match=f"the weights give the certificate {worst}, but the mechanism states"
        ):
            audit.checked_ratio(made, (8, 3))


def test_a_certificate_may_reach_the_cap_and_not_exceed_it() -> None:
    made = WindowMechanism(7, 3, 5, 2, LEVELS)
    assert audit.checked_ratio(made, (7, 3)) == Fraction(7, 3)
    with refused(0, 3, 7, "7/3", "2.33333333", error=audit.NotCertified):
        audit.checked_ratio(made, (6999, 3000))


@pytest.mark.parametrize("theta", [1, 2, 613])
def test_moments_are_those_of_the_weights_on_minus_one_to_one(theta: int) -> None:
    made = WindowMechanism(7, 3, 5, 2, LEVELS)
    values = [2 * Fraction(*made.decode(symbol, theta)) / theta - 1 for symbol in range(made.symbols)]
    levels = audit.exact_levels(made, theta)
    assert [audited.level for audited in levels] == list(range(LEVELS + 1))
    for audited in levels:
        chances = [Fraction(weight, made.total) for weight in made.weights(audited.level)]
        mean = sum(chance * value for chance, value in zip(chances, values, strict=True))
        square = sum(chance * value**2 for chance, value in zip(chances, values, strict=True))
        assert audited.mean == mean == audited.reading == Fraction(2 * audited.level, LEVELS) - 1
        assert audited.variance == square - mean**2
