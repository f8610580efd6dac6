"""The meters' protocols as a board gets them: the tests in `both` and a pulse counter run with compiled files alone."""

import json
import re
from pathlib import Path

import pytest

from support import micropython as mp
from undertone_device.tools.shipped import shipped

BOTH = Path(__file__).with_name("both")
RUNNER = mp.REPO / "tests/support/both_runner.py"
MODULES = [Path(there).stem for there, _ in json.loads(shipped("sensors.json").read_text(encoding="utf-8"))["urls"]]
PULSES = """
import sys

class Pin:
    IN = PULL_UP = IRQ_FALLING = 1
    def __init__(self, *_):
        pass
    def irq(self, handler, trigger):
        handler(self)

class Counter:
    FALLING = UP = 1
    def __init__(self, *_, **__):
        pass
    def value(self):
        return 3

class Machine:
    pass

sys.modules["machine"] = machine = Machine()
machine.Pin = Pin
from undertone_device.sensors import pulses
print(pulses.open_counter(4).read(), pulses.MODULUS)
machine.Counter = Counter
print(pulses.open_counter(4).read(), pulses.__file__)
"""


def test_every_compiled_module_is_there(compiled):
    assert {path.stem for path in (compiled / "undertone_device/sensors").glob("*.mpy")} == set(MODULES)


@pytest.mark.parametrize("module", sorted(path.stem[5:] for path in BOTH.glob("test_*.py")))
def test_a_compiled_protocol_passes_its_tests(module, compiled, micropython, tmp_path):
    text = (BOTH / f"test_{module}.py").read_text(encoding="utf-8")
    names = re.findall(r"^def (test_\w+)\(", text, re.MULTILINE)
    result = micropython(RUNNER, str(BOTH), f"test_{module}", *names, cwd=tmp_path, paths=[compiled], timeout=300)
    outcomes = re.findall(r"^=== (\w+) (\w+)$", result.stdout, re.MULTILINE)
    assert names
    assert outcomes == [("ok", name) for name in names], result.stdout


def test_the_compiled_pulse_counter_counts(compiled, micropython):
    result = micropython(PULSES, paths=[compiled])
    assert result.stdout.splitlines() == [
        "1 1073741823",
        f"3 {compiled}/undertone_device/sensors/pulses.mpy",
    ], result.stdout
