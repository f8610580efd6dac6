"""The two sensors of docs/ulab.md under real MicroPython, with and without ulab: a slot's value is made of a buffer."""

import re
import subprocess

import pytest

from support import micropython as mp
from support.ci import absent, unavailable

BLOCKS = re.findall(r"```python\n(.*?)```", (mp.REPO / "docs/ulab.md").read_text(encoding="utf-8"), re.DOTALL)
MACHINE = """
class Pin:
    def __init__(self, number):
        pass


class ADC:
    def __init__(self, pin):
        self._turn = 0

    def read_u16(self):
        # 50 Hz, as a square of 6553 steps above and below the middle: 9,899 mA.
        self._turn += 1
        return 32768 + (6553 if self._turn // 10 % 2 else -6553)


class I2S:
    RX = MONO = 0

    def __init__(self, number, **options):
        pass

    def readinto(self, buffer):
        # 1,000 above and below a middle of 300: 30 thousandths of full scale.
        for i in range(len(buffer) // 2):
            sample = 300 + (1000 if i % 2 else -1000)
            buffer[2 * i] = sample & 255
            buffer[2 * i + 1] = sample >> 8 & 255
"""
REDUCE = """
from undertone_device.core.slot_value import SlotValue
import sensor
for measure in ("mean", "max", "last"):
    slot = SlotValue(measure)
    slot.add_many(sensor.read(), 0)
    print(measure, slot.close(0))
"""


@pytest.fixture(params=["without ulab", "32", "64"])
def program(request, micropython):
    if request.param == "without ulab":
        return None
    try:
        found = mp.ulab_interpreter(request.param)
    except (OSError, subprocess.SubprocessError) as error:
        unavailable(f"{mp.ulab_folder()} has no interpreter with ulab that runs: {error}")
    return found or absent(f"no interpreters with ulab in {mp.ulab_folder()}: set UNDERTONE_MICROPYTHON_ULAB")


@pytest.mark.parametrize(("block", "value"), [(0, 30), (1, 9899)])
def test_a_sensor_of_the_page(program, tmp_path, block, value):
    (tmp_path / "machine.py").write_text(MACHINE, encoding="utf-8")
    (tmp_path / "sensor.py").write_text(BLOCKS[block], encoding="utf-8")
    result = mp.run_micropython(REDUCE, paths=[tmp_path, *mp.SOURCES], program=program)
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.split() == ["mean", str(value), "max", str(value), "last", str(value)]
