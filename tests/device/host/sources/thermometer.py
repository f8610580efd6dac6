"""A DS18B20 thermometer on a Raspberry Pi's 1-Wire pin: thousandths of a degree Celsius."""

from undertone_device.host.sources import fields as check
from undertone_device.host.sources.fields import Fields
from undertone_device.host.sources.source import Kind, SensorSource


class Thermometer(SensorSource):
    """Reads the file of the kernel's driver. The driver checks the CRC, and writes YES if the CRC is right."""

    slow = True

    def __init__(self, fields: Fields):
        self._path = f"{fields.get('folder', '/sys/bus/w1/devices')}/28-{fields['serial']}/w1_slave"

    def sample(self, now: int) -> int:
        """Return the temperature now. Raises OSError without the sensor, ValueError for a damaged answer."""
        with open(self._path, encoding="ascii") as file:
            crc, _, reading = file.read(256).partition("YES")
        if not reading or "crc=" not in crc:
            raise ValueError(f"{self._path}: the checksum does not fit")
        return int(reading.partition("t=")[2])


KINDS = {
    "thermometer": Kind(Thermometer, {"serial": check.text(12)}, {"folder": check.path}),
}
