"""The heap that a meter's decoder takes on a board with .mpy files, in words of 32 bits, is what the page of boards
says.
"""

import re

import pytest

from support import micropython as mp
from support.ci import unavailable

# The name on the page -> lines that import what a sensor.py needs, and make the decoder.
DECODERS = {
    "Modbus": "from undertone_device.sensors.modbus import Register, rtu_bytes, rtu_question, rtu_value\n"
    "meter = Register(1, 3, 40)",
    "SML": "from undertone_device.sensors.sml import Sml\nmeter = Sml(b'\\x01\\x00\\x01\\x08\\x00\\xff')",
    "P1": "from undertone_device.sensors.p1 import P1\nmeter = P1(('1-0:1.8.1', '1-0:1.8.2'))",
    "IEC 62056-21": "from undertone_device.sensors.iec62056 import SIGN_ON, Readout, answer_to\n"
    "meter = Readout(('1.8.0',))",
}
PAGE = " ".join((mp.REPO / "docs/boards.md").read_text(encoding="utf-8").split())


@pytest.mark.micropython32
@pytest.mark.parametrize("name", DECODERS)
def test_a_decoder_takes_the_heap_that_the_page_states(name, compiled):
    if mp.interpreter32() is None:
        unavailable(mp.MISSING32)
    # This build collects garbage only between the parts.
    parts = [
        "import gc\nimport undertone_device.sensors",
        "gc.collect()",
        f"gc.collect()\nbefore = gc.mem_alloc()\n{DECODERS[name]}",
        "gc.collect()",
        "gc.collect()\nprint(gc.mem_alloc() - before)",
    ]
    done = mp.run_micropython32("\n# ---\n".join(parts), library=[compiled])
    assert done.returncode == 0, done.stderr
    [stated] = re.findall(rf"(\d\.\d) KB for {name}", PAGE)
    assert abs(int(done.stdout) / 1024 - float(stated)) < 0.3
