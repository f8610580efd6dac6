"""Pulses of a meter's S0 output or LED on a board's pin: by the chip's counter where it has one, else by interrupt.

For a campaign that measures ``counter``, with ``"counter_modulus": 1073741823`` in device.json: ``read()`` is the
number of pulses since the boot, modulo that. Nothing counts in deep sleep: pulses belong to boards that stay awake.
"""

import machine

# The largest that a configuration may name.
MODULUS = (1 << 30) - 1
_FILTER_NANOSECONDS = 10000


class InterruptCounter:
    """Counts falling edges by a pin's interrupt."""

    def __init__(self, pin: "machine.Pin"):
        self._count = 0
        # A bound method made once: an interrupt must not allocate.
        pin.irq(handler=self._pulse, trigger=machine.Pin.IRQ_FALLING)

    def _pulse(self, pin: "machine.Pin") -> None:
        count = self._count + 1
        self._count = 0 if count == MODULUS else count

    def read(self) -> int:
        """Pulses since the start, modulo `MODULUS`."""
        return self._count


class HardwareCounter:
    """The chip's own counter."""

    def __init__(self, pin: "machine.Pin"):
        self._counter = machine.Counter(
            0, pin, edge=machine.Counter.FALLING, direction=machine.Counter.UP, filter_ns=_FILTER_NANOSECONDS
        )

    def read(self) -> int:
        """Pulses since the start, modulo `MODULUS`."""
        return self._counter.value() % MODULUS  # type: ignore[no-any-return]


def open_counter(number: int) -> "HardwareCounter | InterruptCounter":
    """A counter of falling edges on pin ``number``, pulled up; the chip's own where the port has it (ESP32, mimxrt)."""
    pin = machine.Pin(number, machine.Pin.IN, machine.Pin.PULL_UP)
    return HardwareCounter(pin) if hasattr(machine, "Counter") else InterruptCounter(pin)
