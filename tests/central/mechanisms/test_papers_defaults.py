"""By default, a release uses the constants that the papers of ToPS and PAK state."""

from fractions import Fraction

import numpy as np

from undertone_central import Pak
from undertone_central.make import parameters
from undertone_central.mechanisms.pak import GAMMA
from undertone_central.mechanisms.threshold import PAPER_C, candidates


def test_paks_defaults_are_those_of_its_paper() -> None:
    """p = 99.5 %, δ = 1/m² with m = 65,536 first values, γ = .3 · .02, and a binary tree without consistency."""
    defaults = {name: each.default for name, each in parameters("pak").items()}
    assert defaults["percentile"] == Fraction("0.995")
    assert defaults["hold_out"] == 65_536
    assert defaults["fanout"] == 2
    assert defaults["consistency"] == "none"
    assert defaults["threshold"] == "s-pak"
    assert defaults["span"] == 2**20
    assert Pak(9, 1).delta == Fraction(1, 65_536**2)
    assert Pak(9, 1, hold_out=100).delta == Fraction(1, 100**2)
    assert GAMMA == 0.3 * 0.02


def test_the_defaults_of_tops_are_those_of_its_paper() -> None:
    """m = 65,536, r = 2^20, fan-out 16 and c = 60. The paper's other choices need --as-papers."""
    defaults = {name: each.default for name, each in parameters("tops").items()}
    assert defaults["hold_out"] == 65_536
    assert defaults["span"] == 2**20
    assert defaults["fanout"] == 16
    assert defaults["c"] == PAPER_C == 60


def test_the_papers_candidates_are_all_integers_up_to_the_bound() -> None:
    for bound in (1, 9, 1657, 41_270, 65_536):
        assert np.array_equal(candidates(bound, "count"), np.arange(1, bound + 1))
    many = candidates(1_000_000, "count")
    assert len(many) <= 65_536
    assert many[-1] == 1_000_000
