"""Time means the same on ports that count from 1970 or from 2000, with or without MicroPython's functions for ticks."""

import importlib
import time

import pytest

from undertone_device.setup import clock


@pytest.fixture
def reloaded(monkeypatch):
    """Reload `clock` under a changed `time`, and again under the real one afterwards."""

    def reload(**changes):
        for name, value in changes.items():
            monkeypatch.setattr(time, name, value, raising=False)
        return importlib.reload(clock)

    yield reload
    monkeypatch.undo()
    importlib.reload(clock)


def test_a_port_that_counts_from_2000(reloaded):
    true = time.time()
    real_gmtime = time.gmtime
    changed = reloaded(gmtime=lambda s: real_gmtime(s + 946684800), time=lambda: true - 946684800)
    assert changed.unix_time() == int(true)


def test_ticks_of_a_64_bit_port_are_cut_to_30_bits(reloaded):
    changed = reloaded(ticks_ms=lambda: (1 << 40) + 7, sleep_ms=None)
    assert changed.ticks() == 7


def test_ticks_are_milliseconds():
    before = clock.ticks()
    clock.sleep_ms(30)
    assert 30 <= (clock.ticks() - before) & ((1 << 30) - 1) < 5000
