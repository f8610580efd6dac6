"""Counter of a meter's S0 pulses or LED flashes on a board's pin, in hardware if the chip can, else by interrupt.

The counter is for a campaign that measures ``counter``, with ``"counter_modulus": 1073741823`` in device.json:
``read()`` is the number of pulses since the boot, modulo that number. Nothing counts during deep sleep, so boards with
pulses must stay awake.
"""

import machine

# The largest modulus that a configuration may have.
MODULUS = (1 << 30) - 1
_FILTER_NANOSECONDS = 10000


class InterruptCounter:
    """Counts falling edges by a pin's interrupt."""

    def __init__(self, pin: "machine.Pin"):
        self._count = 0
        # The bound method is made once, because an interrupt must not allocate memory.
        pin.irq(handler=self._pulse, trigger=machine.Pin.IRQ_FALLING)

    def _pulse(self, pin: "machine.Pin") -> None:
        count = self._count + 1
        self._count = 0 if count == MODULUS else count

    def read(self) -> int:
        """Return the pulses since the start, modulo `MODULUS`."""
        return self._count


class HardwareCounter:
    """Counts falling edges by the chip's own counter."""

    def __init__(self, pin: "machine.Pin"):
        self._counter = machine.Counter(
            0, pin, edge=machine.Counter.FALLING, direction=machine.Counter.UP, filter_ns=_FILTER_NANOSECONDS
        )

    def read(self) -> int:
        """Return the pulses since the start, modulo `MODULUS`."""
        return self._counter.value() % MODULUS  # type: ignore[no-any-return]


def open_counter(number: int) -> "HardwareCounter | InterruptCounter":
    """Open a counter of falling edges on pin ``number``, pulled up.

    The counter is the chip's own if the port has one (ESP32, mimxrt).
    """
    pin = machine.Pin(number, machine.Pin.IN, machine.Pin.PULL_UP)
    return HardwareCounter(pin) if hasattr(machine, "Counter") else InterruptCounter(pin)
