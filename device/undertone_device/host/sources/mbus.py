"""Heat, water and gas meters on a wired M-Bus (EN 13757) behind a level converter, by pyMeterBus, the extra `mbus`."""

import contextlib
import time
from typing import Any

from undertone_device.host.sources import fields as check
from undertone_device.host.sources.buses import open_port
from undertone_device.host.sources.fields import Checks, Fields
from undertone_device.host.sources.source import Kind, SensorSource
from undertone_device.sensors.decimals import units
from undertone_shared.errors import Invalid

# M-Bus meters speak 2400 baud with even parity unless they were set otherwise. They answer within 0.2 s;
# the wait is ten times as long.
_BAUD = 2400
_ANSWER_SECONDS = 2
# A battery-powered meter may miss the first request, because the converter has yet to wake it up.
_TRIES = 3
_RESET, _REQUEST = 0x40, 0x5B
_ACKNOWLEDGED = b"\xe5"
_LONG = 0x68
_UNITS = ("Wh", "J", "m3", "W", "C")


class MBus(SensorSource):
    """The current value of one quantity of the meter at a primary address. The port is opened for each sample."""

    slow = True

    def __init__(self, fields: Fields):
        self._path = fields["port"]
        self._baud = fields.get("baud", _BAUD)
        self._address = fields["address"]
        self._unit = fields["unit"]
        self._number = fields.get("record", 1)
        self._scale = fields.get("scale", (1, 1))

    def sample(self, now: int) -> int:
        """Reset the meter's link, ask for its data, and return the reading. Raises OSError or ValueError."""
        port = open_port(self._path, self._baud, parity="E")
        with contextlib.closing(port):
            port.timeout = _ANSWER_SECONDS
            for _ in range(_TRIES):
                port.reset_input_buffer()
                port.write(_short(_RESET, self._address))
                if port.read(1) == _ACKNOWLEDGED:
                    port.write(_short(_REQUEST, self._address))
                    return self._value(_long(port))
        raise OSError(f"{self._path}: no meter answers at the M-Bus address {self._address}")

    def _value(self, frame: bytes) -> int:
        try:
            import meterbus
        except ImportError:
            raise Invalid("an M-Bus meter needs pyMeterBus: pip install 'undertone-device[mbus]'") from None
        try:
            records = meterbus.load(frame).records
            current = [record for record in records if self._is_current(record.interpreted)]
            value = current[self._number - 1].value
        except IndexError:
            raise ValueError(
                f"{self._path}: source.record is {self._number}, but the meter's number of current values in"
                f" {self._unit} is {len(current)}"
            ) from None
        except Exception as error:
            # pyMeterBus raises exceptions of many types for frames that it cannot decode.
            raise ValueError(f"{self._path}: pyMeterBus cannot decode the answer: {error}") from None
        # pyMeterBus computes in floating point. Six decimals are exact: no register is finer than a millionth.
        return units(f"{value:.6f}", self._scale)

    def _is_current(self, record: dict[str, object]) -> bool:
        current = record["storage_number"] == 0 and record["function"] == "FunctionType.INSTANTANEOUS_VALUE"
        return current and record["unit"] == f"MeasureUnit.{self._unit.upper()}"


def _short(control: int, address: int) -> bytes:
    """Return a short frame of the link layer (EN 13757-2): start, control, address, sum, stop."""
    return bytes([0x10, control, address, control + address & 255, 0x16])


def _long(port: Any) -> bytes:
    """Read one long frame: 68 L L 68, L bytes, sum, stop. Raises OSError if the meter falls silent."""
    head = bytes(port.read(4))
    if len(head) < 4 or head[0] != _LONG or head[3] != _LONG or head[1] != head[2]:
        raise OSError("the meter gives no answer, or one that is no long M-Bus frame")
    end = time.monotonic() + _ANSWER_SECONDS
    frame = head
    while len(frame) < head[1] + 6 and time.monotonic() < end:
        frame += port.read(head[1] + 6 - len(frame))
    if len(frame) < head[1] + 6:
        raise OSError("the meter falls silent within its answer")
    return frame


_NEEDED: Checks = {"port": check.text(), "address": check.integer(0, 250), "unit": check.choice(*_UNITS)}
_MAY: Checks = {"baud": check.integer(300, 38400), "record": check.integer(1, 64), "scale": check.scale}
KINDS = {"mbus": Kind(MBus, _NEEDED, _MAY)}
