"""CRC-16 of the meters' protocols, bit by bit, because their frames are short."""

ARC = MODBUS = 0xA001
X25 = 0x8408


def crc16(data: "bytes | bytearray | memoryview", polynomial: int, start: int) -> int:
    """Return the reflected CRC of ``data`` with ``polynomial`` (also reflected) from ``start``, not complemented.

    P1: ARC from 0. Modbus: MODBUS from 0xFFFF. SML: X25 from 0xFFFF, complemented by the caller.
    """
    crc = start
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ polynomial if crc & 1 else crc >> 1
    return crc
