"""Modbus: one value in 1, 2 or 4 registers, read by function 3 or 4 over a serial line (RTU, with a CRC) or TCP.

Over TCP the protocol has no checksum of its own, so the caller compares two answers.
"""

import struct

from undertone_device.sensors.crc import MODBUS, crc16
from undertone_device.sensors.decimals import binary32, scaled

TYPE_CHECKING = False
if TYPE_CHECKING:
    from undertone_device.sensors.decimals import Scale

FORMS = ("unsigned", "signed", "float")


class Register:
    """Place and format of the value. ``unit``: the meter's address on the bus, 0 to 255. ``function``: 3 or 4.

    ``address``: the number of the first register. ``registers``: 1, 2 or 4 (a float has 2). ``form``: one of `FORMS`.
    ``swap``: the lowest word comes first.
    """

    def __init__(
        self,
        unit: int,
        function: int,
        address: int,
        registers: int = 2,
        form: str = "unsigned",
        swap: bool = False,
        scale: "Scale" = (1, 1),
    ):
        self.unit = unit
        self.function = function
        self._address = address
        self._registers = registers
        self._form = form
        self._swap = swap
        self._scale = scale

    def question(self) -> bytes:
        """Return the bytes of the question: function, address, number of registers."""
        return struct.pack(">BHH", self.function, self._address, self._registers)

    def answer_bytes(self) -> int:
        """Return the number of bytes of the answer: function, byte count, registers."""
        return 2 + 2 * self._registers

    def value(self, answer: bytes) -> int:
        """Return the reading in an answer. Raises ValueError for a Modbus exception, another function or length."""
        if len(answer) != self.answer_bytes() or answer[0] != self.function or answer[1] != len(answer) - 2:
            raise ValueError("the meter gives no value for this register")
        words = [answer[i] << 8 | answer[i + 1] for i in range(2, len(answer), 2)]
        if self._swap:
            words.reverse()
        bits = 0
        for word in words:
            bits = bits << 16 | word
        if self._form == "float":
            return binary32(bits, self._scale)
        if self._form == "signed" and words[0] & 0x8000:
            bits -= 1 << 16 * len(words)
        return scaled(bits, 1, self._scale)


def rtu_question(register: Register) -> bytes:
    """Return the request frame: unit, question, CRC with its low byte first."""
    return _with_crc(bytes([register.unit]) + register.question())


def rtu_bytes(register: Register) -> int:
    """Return the length of the answer frame."""
    return 3 + register.answer_bytes()


def rtu_value(register: Register, frame: bytes) -> int:
    """Return the reading in a frame. Raises ValueError for an invalid one."""
    if _with_crc(frame[:-2]) != frame or frame[0] != register.unit:
        raise ValueError("the answer is missing, damaged or from another meter")
    return register.value(frame[1:-2])


def _with_crc(frame: bytes) -> bytes:
    return frame + struct.pack("<H", crc16(frame, MODBUS, 0xFFFF))


def tcp_question(register: Register, transaction: int) -> bytes:
    """Return the request frame: transaction, protocol 0, length, unit, question."""
    question = register.question()
    return struct.pack(">HHHB", transaction, 0, len(question) + 1, register.unit) + question


def tcp_bytes(frame: bytes) -> int:
    """Return the length of the whole frame that begins with these bytes; 6 while its length field is incomplete."""
    return 6 if len(frame) < 6 else 6 + (frame[4] << 8 | frame[5])


def tcp_value(register: Register, transaction: int, frame: bytes) -> int:
    """Return the reading in a frame. Raises ValueError for an invalid one."""
    begins = struct.pack(">HH", transaction, 0)
    if frame[:4] != begins or len(frame) != tcp_bytes(frame) or frame[6:7] != bytes((register.unit,)):
        raise ValueError("no valid answer to this request")
    return register.value(frame[7:])
