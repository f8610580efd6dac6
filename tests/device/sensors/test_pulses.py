"""A pulse counter uses the chip's own counter where the port has one, and an interrupt elsewhere."""

import importlib
import sys
import types

import pytest


class Pin:
    IN, PULL_UP, IRQ_FALLING = 0, 1, 2

    def __init__(self, number, mode, pull):
        assert (mode, pull) == (self.IN, self.PULL_UP)
        self.number = number

    def irq(self, handler, trigger):
        assert trigger == self.IRQ_FALLING
        self.fall = lambda: handler(self)


class Counter:
    FALLING, UP = 2, 1

    def __init__(self, number, pin, *, edge, direction, filter_ns):
        # The ESP32's filter is at most 1023 cycles of 80 MHz.
        assert (edge, direction) == (self.FALLING, self.UP)
        assert 0 < filter_ns <= 12787
        self.count = 0

    def value(self):
        return self.count


@pytest.fixture
def pulses(monkeypatch, request):
    machine = types.ModuleType("machine")
    machine.Pin = Pin
    if request.param == "esp32":
        machine.Counter = Counter
    monkeypatch.setitem(sys.modules, "machine", machine)
    monkeypatch.delitem(sys.modules, "undertone_device.sensors.pulses", raising=False)
    yield importlib.import_module("undertone_device.sensors.pulses")
    sys.modules.pop("undertone_device.sensors.pulses", None)


@pytest.mark.parametrize("pulses", ["esp32"], indirect=True)
def test_the_chips_counter(pulses):
    counter = pulses.open_counter(4)
    assert counter.read() == 0
    counter._counter.count = pulses.MODULUS + 7
    assert counter.read() == 7


@pytest.mark.parametrize("pulses", ["rp2"], indirect=True)
def test_an_interrupt_counts_and_wraps_at_the_configurations_modulus(pulses):
    pin = Pin(4, Pin.IN, Pin.PULL_UP)
    counter = pulses.InterruptCounter(pin)
    for _ in range(5):
        pin.fall()
    assert counter.read() == 5
    counter._count = pulses.MODULUS - 1
    pin.fall()
    assert counter.read() == 0
    assert isinstance(pulses.open_counter(4), pulses.InterruptCounter)
