"""Meters on a serial port (P1, SML, IEC 62056-21, Modbus RTU) by pyserial, the extra `meters`; and Modbus over TCP."""

import contextlib
import socket
import time
from typing import Any, Protocol

from undertone_device.core.slot_value import TICKS_MASK
from undertone_device.host.sources import fields as check
from undertone_device.host.sources.fields import Checks, Fields
from undertone_device.host.sources.source import Kind, SensorSource
from undertone_device.sensors import modbus
from undertone_device.sensors.iec62056 import BAUD, SIGN_ON, Readout, Telegram, answer_to
from undertone_device.sensors.p1 import P1
from undertone_device.sensors.sml import UNITS, Sml
from undertone_device.setup import clock
from undertone_shared.errors import Invalid

_RETRY_SECONDS = 5
# Seconds of silence after which a meter counts as failed; a meter sends at least every ten seconds.
_SILENT_SECONDS = 60
_ANSWER_SECONDS = 2
# A meter's name has up to 26 characters, of 10 bits at 300 baud, and begins up to 1.5 s after the sign-on.
_NAME_SECONDS = 5
# Long readouts of real meters have 10,000 characters; within one, a meter is silent for at most 1.5 s.
_LARGEST_READOUT = 32768
_SILENCE_SECONDS = 5
_BITS = 10
_ANSWERS = 3
_KWH = (1000, 1)


class FrameDecoder(Protocol):
    """A decoder from bytes to readings, one of those in `sensors`."""

    bad: int

    def feed(self, data: bytes) -> list[int]:
        """Return the readings that ``data`` completes."""


def open_port(path: str, baud: int, parity: str = "N") -> Any:
    """Open the serial port: 8 data bits, parity N (none) or E (even), non-blocking.

    Raises OSError; Invalid without pyserial.
    """
    try:
        import serial
    except ImportError:
        raise Invalid("a serial port needs pyserial: pip install 'undertone-device[meters]'") from None
    return serial.Serial(path, baud, parity=parity, timeout=0, exclusive=True)


class Pushed(SensorSource):
    """Readings that a meter sends by itself through a serial port.

    If the port is lost, it is opened again and again.
    """

    polled = False

    def __init__(self, fields: Fields, decoder: FrameDecoder, baud: int):
        self._path = fields["port"]
        self._baud = fields.get("baud", baud)
        self._decoder = decoder
        self._port: Any = None
        self._next: float = 0
        self._heard = time.monotonic()

    def arrived(self) -> list[int]:
        """Return the readings since the last call."""
        now = time.monotonic()
        try:
            if self._port is None:
                if now < self._next:
                    return []
                self._next = now + _RETRY_SECONDS
                self._port = open_port(self._path, self._baud)
                self._heard = now
            readings = self._decoder.feed(self._port.read(65536))
        except OSError as error:
            self.close()
            self.trouble = f"no sample: {self._path}: {error}"
            return []
        if readings:
            self._heard = now
            self.trouble = ""
        elif now - self._heard > _SILENT_SECONDS:
            self.trouble = (
                f"no sample: {self._path} is silent, or its messages are damaged or have no usable value of the"
                f" register (bad frames: {self._decoder.bad})"
            )
        return readings

    def close(self) -> None:
        """Close the port."""
        if self._port is not None:
            with contextlib.suppress(OSError):
                self._port.close()
        self._port = None


class Asked(SensorSource):
    """A meter on a serial port that answers requests."""

    slow = True

    def __init__(self, fields: Fields, baud: int):
        self._path = fields["port"]
        self._baud = fields.get("baud", baud)

    def sample(self, now: int) -> int:
        """Open the port, ask, and close it, so that a port that was unplugged is found again."""
        port = open_port(self._path, self._baud)
        with contextlib.closing(port):
            port.reset_input_buffer()
            return self.ask(port)

    def ask(self, port: Any) -> int:
        """Return the reading. Raises OSError or ValueError."""
        raise NotImplementedError


class Optical(Asked):
    """IEC 62056-21 modes A, B, C: sign on at 300 baud, use the speed that the meter offers, read its readout."""

    def __init__(self, fields: Fields):
        super().__init__(fields, BAUD)
        self._fields = fields

    def ask(self, port: Any) -> int:
        """Return the sum of the registers. The time limit follows from the speed."""
        meter = Readout(*_registers(self._fields))
        port.write(SIGN_ON)
        port.timeout = _NAME_SECONDS
        try:
            answer, baud = answer_to(port.read_until(b"\x0a"))
        except ValueError:
            raise OSError(f"{self._path}: the meter gives no valid answer to the sign-on") from None
        self._change_speed(port, answer, baud)
        port.timeout = _SILENCE_SECONDS
        end = time.monotonic() + _LARGEST_READOUT * _BITS // baud
        while time.monotonic() < end:
            data = port.read(max(port.in_waiting, 1))
            if not data:
                raise OSError(f"{self._path}: the meter falls silent at {baud} baud before its readout ends")
            readings = meter.feed(data)
            if readings:
                return readings[0]
            if meter.bad:
                codes = ", ".join(self._fields["obis"])
                unit = self._fields.get("unit", "kWh")
                raise ValueError(f"{self._path}: the readout is damaged, or has no usable value of {codes} in {unit}")
        raise OSError(
            f"{self._path}: the readout is longer than {_LARGEST_READOUT} characters, or too slow for {baud} baud"
        )

    def _change_speed(self, port: Any, answer: bytes, baud: int) -> None:
        if answer:
            started = clock.ticks()
            port.write(answer)
            port.flush()
            # Some adapters report too early that everything is sent.
            left = 1000 * len(answer) * _BITS // port.baudrate - (clock.ticks() - started & TICKS_MASK)
            clock.sleep_ms(max(left, 0))
        if baud != port.baudrate:
            port.baudrate = baud


class ModbusRtu(Asked):
    """One Modbus register over a serial line."""

    def __init__(self, fields: Fields):
        super().__init__(fields, 9600)
        self._register = _register(fields)

    def ask(self, port: Any) -> int:
        """Return the register's reading."""
        port.timeout = _ANSWER_SECONDS
        port.write(modbus.rtu_question(self._register))
        return modbus.rtu_value(self._register, port.read(modbus.rtu_bytes(self._register)))


class ModbusTcp(SensorSource):
    """One Modbus register over TCP, with a connection for each sample.

    Modbus over TCP has no checksum, so two answers must agree.
    """

    slow = True

    def __init__(self, fields: Fields):
        self._address = (fields["host"], fields.get("tcp_port", 502))
        self._register = _register(fields)
        self._transaction = 0

    def sample(self, now: int) -> int:
        """Return a reading on which two answers in a row agree.

        It asks several times, because the reading may change.
        """
        with socket.create_connection(self._address, _ANSWER_SECONDS) as connection:
            last = self._ask(connection)
            for _ in range(_ANSWERS):
                reading = self._ask(connection)
                if reading == last:
                    return reading
                last = reading
        raise ValueError(f"{self._address[0]}: none of {_ANSWERS + 1} answers agrees with the one before")

    def _ask(self, connection: socket.socket) -> int:
        self._transaction = (self._transaction + 1) & 0xFFFF
        connection.sendall(modbus.tcp_question(self._register, self._transaction))
        end = time.monotonic() + _ANSWER_SECONDS
        frame = b""
        while len(frame) < modbus.tcp_bytes(frame) and time.monotonic() < end:
            data = connection.recv(256)
            if not data:
                break
            frame += data
        return modbus.tcp_value(self._register, self._transaction, frame)


def _register(fields: Fields) -> modbus.Register:
    registers = fields.get("registers", 2)
    form = fields.get("form", "unsigned")
    if registers == 3 or (form == "float" and registers != 2):
        raise Invalid(f"source.registers is {registers}, expected 1, 2 or 4 (for a float: 2)")
    return modbus.Register(
        fields["slave"],
        fields.get("function", 3),
        fields["address"],
        registers,
        form,
        fields.get("swap", False),
        fields.get("scale", (1, 1)),
    )


def _registers(fields: Fields) -> tuple[tuple[str, ...], str, tuple[int, int]]:
    """Return the register codes, unit and scale in the fields of a meter with a text protocol."""
    return fields["obis"], fields.get("unit", "kWh"), fields.get("scale", _KWH)


def _p1(fields: Fields) -> Pushed:
    return Pushed(fields, P1(*_registers(fields)), 115200)


def _mode_d(fields: Fields) -> Pushed:
    return Pushed(fields, Telegram(*_registers(fields)), 9600)


def _sml(fields: Fields) -> Pushed:
    unit = fields.get("unit", "Wh")
    if unit not in UNITS:
        raise Invalid(f"source.unit is {unit!r}, expected one of {', '.join(UNITS)}")
    return Pushed(fields, Sml(_obis_bytes(fields["obis"]), unit, fields.get("scale", (1, 1))), 9600)


def _obis_bytes(codes: tuple[str, ...]) -> bytes:
    """Convert ``1-0:1.8.0`` to the six bytes that SML uses; the last one is 255 unless it is given."""
    try:
        if len(codes) != 1:
            raise ValueError
        medium, _, rest = codes[0].partition("-")
        channel, _, rest = rest.partition(":")
        rest, _, last = rest.partition("*")
        return bytes([int(part) for part in [medium, channel] + rest.split(".") + [last or "255"]])
    except ValueError:
        raise Invalid(f"source.obis is {', '.join(codes)!r}, expected one register such as 1-0:1.8.0") from None


_BAUD: Checks = {"baud": check.integer(50, 4000000)}
_METER: Checks = {"port": check.text(), "obis": check.registers}
_METER_MAY: Checks = _BAUD | {"unit": check.text(8), "scale": check.scale}
_REGISTER: Checks = {"slave": check.integer(0, 255), "address": check.integer(0, 65535)}
_REGISTER_MAY: Checks = {
    "function": check.integer(3, 4),
    "registers": check.integer(1, 4),
    "form": check.choice(*modbus.FORMS),
    "swap": check.flag,
    "scale": check.scale,
}

KINDS = {
    "p1": Kind(_p1, _METER, _METER_MAY),
    "sml": Kind(_sml, _METER, _METER_MAY),
    "iec62056": Kind(Optical, _METER, _METER_MAY),
    "iec62056-d": Kind(_mode_d, _METER, _METER_MAY),
    "modbus-rtu": Kind(ModbusRtu, _REGISTER | {"port": check.text()}, _REGISTER_MAY | _BAUD),
    "modbus-tcp": Kind(ModbusTcp, _REGISTER | {"host": check.text()}, _REGISTER_MAY | {"tcp_port": check.port}),
}
