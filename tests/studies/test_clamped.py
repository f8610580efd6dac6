"""S-P in Figure 7: how often θ is 1 or the public bound. The closed form agrees with draws."""

import numpy as np
import pytest

from undertone_studies.tops_methods import quantile_threshold, source
from undertone_studies.tops_streams import stand_in
from undertone_studies.tops_threshold import clamped


@pytest.mark.slow
def test_the_closed_form_is_what_is_drawn() -> None:
    """300 draws at ε = .1. A share may be off by .17, which is at least six of its standard deviations."""
    stream = stand_in("Kosarak", 1)
    low, high = clamped(stream, "0.1")
    drawn = np.array([quantile_threshold(stream, "0.1", source(1, i, "clamped"), "s-p") for i in range(300)])
    assert abs(np.mean(drawn == 1) - low) < 6 * 0.5 / 300**0.5
    assert abs(np.mean(drawn == stream.bound) - high) < 6 * 0.5 / 300**0.5
    # At this ε, each end has a chance over .4.
    assert 0.4 < high < low < 0.51
