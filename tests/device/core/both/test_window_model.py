"""The promises about windows hold in random lives of a device: a few here, ten thousand in `test_window_lives`."""

import sys

from window_model import Life

SHORT = sys.implementation.name == "micropython"


def test_no_random_life_breaks_a_promise_about_a_window():
    drawn = 0
    for seed in range(3 if SHORT else 40):
        life = Life(seed).run()
        assert life.broken == [], (seed, life.broken)
        drawn += len(life.draws)
    assert drawn > (10 if SHORT else 300)
