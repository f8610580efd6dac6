"""IEC 62056-21 (once IEC 1107) readouts over an optical head: mode C at 300 baud, mode D as it comes.

Characters have 7 bits and even parity; open the port with 8 bits and no parity, the parity is checked here. A readout
is ``STX lines ETX BCC``, BCC the exclusive or of everything after STX up to ETX.
"""

from undertone_device.sensors.decimals import units

TYPE_CHECKING = False
if TYPE_CHECKING:
    from undertone_device.sensors.decimals import Scale

STX = 2
ETX = 3
LARGEST = 8192
BAUD = 300


def _parity(byte: int) -> int:
    byte ^= byte >> 4
    byte ^= byte >> 2
    return (byte ^ byte >> 1) & 1


def even(text: bytes) -> bytes:
    """The characters with their parity bits, as they go over the wire."""
    return bytes([byte | _parity(byte) << 7 for byte in text])


# What asks a meter to speak, and what answers its name: read out, at the speed that we speak now.
SIGN_ON = even(b"/?!\r\n")
READ_OUT = even(b"\x06000\r\n")


class Readout:
    """The register ``obis`` (such as ``1.8.0``) in ``unit`` times ``scale``."""

    def __init__(self, obis: str, unit: str = "kWh", scale: "Scale" = (1000, 1)):
        self._obis = obis
        self._unit = unit
        self._scale = scale
        # None outside a readout.
        self._block: bytearray | None = None
        self._check = 0
        self._ended = False
        self.bad = 0

    def feed(self, data: bytes) -> "list[int]":
        """The readings that ``data`` completes."""
        readings = []
        for byte in data:
            if _parity(byte):
                # Even parity makes the eighth bit part of the sum.
                self._drop()
                continue
            character = byte & 0x7F
            if self._block is None:
                if character == STX:
                    self._block = bytearray()
                    self._check = 0
            elif self._ended:
                if character == self._check:
                    try:
                        readings.append(self._value(bytes(self._block).decode()))
                    except ValueError:
                        self.bad += 1
                    self._block = None
                    self._ended = False
                else:
                    self._drop()
            else:
                self._check ^= character
                if character == ETX:
                    self._ended = True
                elif len(self._block) < LARGEST:
                    self._block.append(character)
                else:
                    self._drop()
        return readings

    def _drop(self) -> None:
        if self._block is not None:
            self.bad += 1
        self._block = None
        self._ended = False

    def _value(self, text: str) -> int:
        head = self._obis + "("
        lines = [line for line in text.split("\r\n") if line.startswith(head) or line.split(":")[-1].startswith(head)]
        if len(lines) != 1:
            raise ValueError("the register is missing, or there twice")
        line = lines[0]
        value = line[line.find("(") + 1 : line.find(")")].split("*")
        if value[1:] != [self._unit]:
            raise ValueError("the register has another unit")
        return units(value[0], self._scale)
