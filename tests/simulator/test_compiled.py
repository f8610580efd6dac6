"""Compiled draws are, symbol for symbol, those of numpy."""

from importlib import import_module

import numpy as np
import pytest

from support.ci import unavailable
from support.designed import DESIGNED
from undertone_shared.mechanism import Hybrid, WindowMechanism
from undertone_simulator.fast import vectorised
from undertone_simulator.fast.vectorised import symbols
from undertone_simulator.seeded import Seeded

DEVICES = 3000
HYBRIDS = [pytest.param(m, id=f"{name}-{epsilon}") for name, epsilon, m in DESIGNED if isinstance(m, Hybrid)]


@pytest.fixture
def compiled():
    try:
        return import_module("undertone_simulator.fast.compiled")
    except ModuleNotFoundError:
        unavailable("numba is not installed: pip install 'undertone-ldp[compiled]'")


@pytest.mark.parametrize("theta", [1, 2, 3, 613, 1000, 1025, (1 << 20) + 1, ((1 << 30) - 1) // 256])
@pytest.mark.parametrize("mechanism", HYBRIDS)
def test_every_symbol_is_that_of_numpy(compiled, mechanism, theta, monkeypatch):
    generator = np.random.default_rng(theta)
    readings = generator.integers(0, theta + 1, DEVICES)
    readings[:2] = 0, theta
    words = Seeded(3).words(7, generator.permutation(DEVICES))
    plain = symbols(mechanism, readings, theta, words)
    left = compiled.draw(mechanism, readings, theta, words, np.empty(DEVICES, dtype=np.uint32))
    # Few devices need more words, even if each word is rejected with probability 1/2: 1/4 + 1/32 of them then.
    assert len(left) < 0.35 * DEVICES
    monkeypatch.setattr(vectorised, "COMPILED", 1)
    monkeypatch.setattr(vectorised, "BLOCK", 1024)
    assert np.array_equal(symbols(mechanism, readings, theta, words), plain)


def test_the_compiled_loop_is_used_for_large_blocks_only(compiled, monkeypatch):
    used = []
    draw = compiled.draw
    monkeypatch.setattr(compiled, "draw", lambda *arguments: used.append(len(arguments[1])) or draw(*arguments))
    monkeypatch.setattr(vectorised, "COMPILED", 2000)
    mechanism = HYBRIDS[0].values[0]
    for devices in (1999, 2000):
        symbols(mechanism, np.full(devices, 5), 10, Seeded(1).words(1, range(devices)))
    # Another second part than plain randomised rounding is drawn by numpy.
    wide = Hybrid(20000, WindowMechanism(2, 1, 2, 1, 1), WindowMechanism(2, 1, 3, 2, 16, None, 3))
    symbols(wide, np.full(2000, 5), 10, Seeded(1).words(1, range(2000)))
    assert used == [2000]
