import math
from fractions import Fraction

import numpy as np
import pytest

from undertone_aggregator.base.plain import STEADY, plain


def test_values_as_json_carries_them():
    value = {1: (Fraction(1, 3), b"\x01\xff", math.nan), "array": np.array([1.5, math.inf])}
    assert plain(value) == {"1": ["1/3", "01ff", None], "array": [1.5, None]}
    with pytest.raises(TypeError):
        plain(object())


def test_what_is_compared_leaves_out_digits_that_depend_on_the_processor():
    assert plain([0.1 + 0.2, np.float64(2e9) / 3, 12345678901], STEADY) == [0.3, 666666670.0, 12345678901]
