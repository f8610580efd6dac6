"""With a filled buffer, drawing a report allocates no memory. So every integer in it is a small integer."""

import gc

from designed_tables import designed
from shipped import mechanisms
from small_mechanisms import SMALL

from undertone_shared.entropy import Entropy

RUNS_ON = ("micropython", "micropython32")


def draw(mechanism, x, theta, entropy):
    part = mechanism.choose(entropy)
    return part.draw(part.level(x, theta, entropy), entropy)


def check(name, mechanism, theta):
    import micropython

    entropy = Entropy()
    draws = 0
    for x in (0, theta // 2, theta) * 20:
        entropy.refill()
        gc.collect()
        micropython.heap_lock()
        try:
            symbol = draw(mechanism, x, theta, entropy)
        finally:
            micropython.heap_unlock()
        assert 0 <= symbol < mechanism.symbols, name
        draws += 1
    assert draws == 60


def test_a_draw_allocates_nothing():
    for name, mechanism, theta in SMALL + mechanisms():
        check(name, mechanism, theta)
    for epsilon, theta, table in designed():
        check("table " + epsilon, table, theta)
