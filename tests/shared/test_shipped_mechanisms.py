"""Each mechanism in the sizes that devices use: the boundaries between outcomes, certificate, rows, exact moments."""

import pytest
import shipped
from proofs import check_all

from support.designed import DESIGNED
from undertone_aggregator import design


@pytest.mark.parametrize(("name", "epsilon", "mechanism"), [pytest.param(*d, id=f"{d[0]}-{d[1]}") for d in DESIGNED])
def test_shipped_size(name, epsilon, mechanism):
    middle = mechanism.levels // 2
    check_all(mechanism, 1000, {0, 1, middle, mechanism.levels})
    p = design.exponential_below(design.Budget.parse(epsilon).epsilon)
    scale = 1 << 48
    assert mechanism.permits((p.numerator * scale // p.denominator, scale))


def test_boards_get_the_designers_integers():
    for epsilon, a, b, coin, window, best in shipped.SHIPPED:
        hybrid = design.hybrid(epsilon)
        optimal = design.piecewise_optimal(epsilon)
        assert (hybrid.rounding.a, hybrid.rounding.b, hybrid.coin) == (a, b, coin)
        assert (hybrid.piecewise.window, optimal.window) == (window, best)
        assert hybrid.piecewise.stride == optimal.stride == shipped.STRIDE
