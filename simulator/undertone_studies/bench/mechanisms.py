"""Benchmark of the exact integer mechanisms against the usual floating-point ones, and on MicroPython."""

import json
import subprocess
import sys
from functools import partial
from math import exp
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import undertone_shared
from undertone_aggregator.design import hybrid
from undertone_shared.entropy import Entropy
from undertone_shared.mechanism import Hybrid
from undertone_simulator.fast.vectorised import symbols
from undertone_simulator.processes import find_micropython
from undertone_simulator.seeded import Seeded
from undertone_studies.registry import StudyOptions
from undertone_studies.row import Measured, best_seconds, duration, rate

TITLE = "Drawing reports"

Floats = NDArray[np.float64]

THETA = 1000
FLOAT_BLOCKS = (1 << 14, 1 << 15, 1 << 16)


class FloatHybrid:
    """Baseline: the hybrid mechanism in good numpy code, with two doubles per device, in blocks and with reused memory.

    Its privacy is approximate: doubles leave gaps that depend on the reading (Mironov, CCS 2012).
    """

    def __init__(self, epsilon: float, block: int, seed: int = 1) -> None:
        self._e = exp(epsilon)
        self._s = exp(epsilon / 2)
        self._block = block
        self._generator = np.random.Generator(np.random.SFC64(seed))
        self._coin, self._uniform, self._chance = np.empty((3, block))
        self._up = np.empty(block, dtype=np.bool_)

    def draw(self, readings: Floats, out: Floats) -> None:
        """Write one unbiased estimate for each reading in [-1, 1] to ``out``."""
        s, e = self._s, self._e
        outer = (e + 1) / (e - 1)
        reach = (s + 1) / (s - 1)
        near = s / (s + 1)
        for first in range(0, len(readings), self._block):
            x, y = readings[first : first + self._block], out[first : first + self._block]
            coin, uniform = self._coin[: len(x)], self._uniform[: len(x)]
            chance, up = self._chance[: len(x)], self._up[: len(x)]
            self._generator.random(out=coin)
            self._generator.random(out=uniform)
            np.multiply(x, 0.5 / outer, out=chance)
            chance += 0.5
            np.less(uniform, chance, out=up)
            np.multiply(up, 2 * outer, out=y)
            y -= outer
            piecewise = np.flatnonzero(coin < 1 - 1 / s)
            t, v = x[piecewise], uniform[piecewise]
            left = (reach + 1) / 2 * t
            left -= (reach - 1) / 2
            inside = v * ((reach - 1) / near)
            inside += left
            outside = v - near
            outside *= (reach + 1) / (1 - near)
            outside -= reach
            outside += (reach - 1) * (outside >= left)
            y[piecewise] = np.where(v < near, inside, outside)


def run(options: StudyOptions) -> list[Measured]:
    """Measure millions of reports per second, vectorised and scalar.

    If MicroPython is installed, also measure its microseconds per report.
    """
    rows = []
    for epsilon in (1, 4):
        rows += _vectorised(epsilon, 1 << 17 if options.quick else 1 << 20, 2 if options.quick else 12)
    return rows + _micropython(200 if options.quick else 5000)


def _vectorised(epsilon: int, devices: int, rounds: int) -> list[Measured]:
    mechanism = hybrid(epsilon)
    generator = np.random.default_rng(1)
    readings = generator.integers(0, THETA + 1, devices)
    words = Seeded(1).words(0, range(devices))
    scaled = (readings * (2 / THETA) - 1).astype(np.float64)
    out = np.empty(devices)
    floats = [FloatHybrid(epsilon, block) for block in FLOAT_BLOCKS]
    baselines = [partial(baseline.draw, scaled, out) for baseline in floats]
    ours = partial(symbols, mechanism, readings, THETA, words)
    plain, *blocked = best_seconds([ours, *baselines], rounds)
    few = min(devices, 20_000)
    scalar = best_seconds([partial(_scalar, mechanism, few)], 2)[0]
    baseline = devices / min(blocked) / 1e6
    what, unit = f"hybrid, vectorised, epsilon {epsilon}", "million reports/s"
    return [
        rate(what, devices / plain / 1e6, unit, "hybrid in floating point, numpy", baseline),
        rate(what, devices / plain / 1e6, unit, "scalar draw, CPython", few / scalar / 1e6),
    ]


def _scalar(mechanism: Hybrid, draws: int) -> None:
    entropy = Entropy()
    for i in range(draws):
        entropy.refill()
        part = mechanism.choose(entropy)
        part.draw(part.level(i % (THETA + 1), THETA, entropy), entropy)


# The program ``_PROGRAM`` runs under CPython and MicroPython, and prints the microseconds of a refill and of a draw
# from a filled buffer.
_PROGRAM = """
import json, sys, time
sys.path[:0] = [sys.argv[1]]
from undertone_shared.entropy import Entropy
from undertone_shared.notation import parse_mechanism
mechanism = parse_mechanism("mechanism", json.loads(sys.argv[2]))
draws = int(sys.argv[3])
now = time.ticks_us if hasattr(time, "ticks_us") else lambda: int(time.perf_counter() * 1000000)
since = time.ticks_diff if hasattr(time, "ticks_diff") else lambda end, start: end - start
entropy = Entropy()
refilling = drawing = 0
for i in range(draws):
    start = now()
    entropy.refill()
    middle = now()
    part = mechanism.choose(entropy)
    part.draw(part.level(i % 1001, 1000, entropy), entropy)
    drawing += since(now(), middle)
    refilling += since(middle, start)
print(json.dumps([refilling / draws, drawing / draws]))
"""


def _micropython(draws: int) -> list[Measured]:
    interpreter = find_micropython()
    if interpreter is None:
        return []
    shared = str(Path(undertone_shared.__file__).parents[1])
    arguments = ["-c", _PROGRAM, shared, json.dumps(hybrid(1).describe()), str(draws)]
    measured = []
    for program in (interpreter, sys.executable):
        done = subprocess.run([program, *arguments], capture_output=True, encoding="utf-8", timeout=300, check=True)
        measured.append(json.loads(done.stdout))
    (refill, draw), (refill_here, draw_here) = measured
    return [
        duration("hybrid, one draw on MicroPython", draw, "µs", "one draw on CPython", draw_here),
        duration("random bytes and their test on MicroPython", refill, "µs", "on CPython", refill_here),
    ]
