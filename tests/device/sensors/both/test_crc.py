"""The three checksums of "123456789" are those in the catalogue of CRC algorithms."""

from undertone_device.sensors.crc import ARC, MODBUS, X25, crc16

CHECK = b"123456789"


def test_check_values():
    assert crc16(CHECK, ARC, 0) == 0xBB3D
    assert crc16(CHECK, MODBUS, 0xFFFF) == 0x4B37
    assert crc16(CHECK, X25, 0xFFFF) ^ 0xFFFF == 0x906E
