"""Sums of buffers of samples under the real ulab, with floats of 32 and of 64 bits: each is exact or refused."""

import subprocess

import pytest

from support import micropython as mp
from support.ci import absent, unavailable

RANDOM_BUFFERS = """
from ulab import numpy as np
from undertone_device.core.buffers import summary
from undertone_device.core.slot_value import SlotValue
state = 1
def below(n):
    global state
    state = (state * 1103515245 + 12345) & 0x3fffffff
    return (state >> 6) % n
wrong = 0
for dtype, low, high in ((np.int8, -128, 127), (np.uint8, 0, 255), (np.int16, -32768, 32767), (np.uint16, 0, 65535)):
    for n in list(range(1, 20)) + [127, 128, 129, 500, 1000]:
        for kind in range(8):
            if kind == 0:
                values = [low] * n
            elif kind == 1:
                values = [high] * n
            else:
                values = [low + below(high - low + 1) for _ in range(n)]
            vector = np.array(values, dtype=dtype)
            assert summary(vector) == summary(values) == (n, sum(values), max(values), values[-1]), (dtype, values)
            wrong += int(np.sum(np.array(values))) != sum(values)
            for measure, value in (("sum", sum(values)), ("mean", (2 * sum(values) + n) // (2 * n)),
                                   ("max", max(values)), ("last", values[-1])):
                slot = SlotValue(measure)
                slot.add_many(vector, 0)
                assert slot.close(0) == value, measure
print("wrong", wrong)
"""

REFUSED = """
from ulab import numpy as np
from undertone_device.core.slot_value import SlotValue
from undertone_shared.errors import Invalid
arrays = [np.array([1, 0]) > 0, np.array([1, 2, 3]), np.array([1.5, 2]), np.array([[1, 2], [3, 4]], dtype=np.int16)]
for bad in arrays + [[1.5], [1 << 40]]:
    slot = SlotValue("sum")
    try:
        slot.add_many(bad, 0)
    except Invalid as error:
        assert "expected" in str(error)
    else:
        raise AssertionError(bad)
    assert slot.close(0) is None, "a part of a refused buffer was counted"
print("refused")
"""


@pytest.fixture(params=["32", "64"])
def ulab(request):
    try:
        program = mp.ulab_interpreter(request.param)
    except (OSError, subprocess.SubprocessError) as error:
        unavailable(f"{mp.ulab_folder()} has no interpreter with ulab that runs: {error}")
    if program is None:
        absent(f"no interpreters with ulab in {mp.ulab_folder()}: set UNDERTONE_MICROPYTHON_ULAB")

    def run(code):
        result = mp.run_micropython(code, program=program)
        assert result.returncode == 0, result.stdout + result.stderr
        return result.stdout

    return run


def test_sums_are_exact_where_ulabs_own_are_not(ulab):
    assert int(ulab(RANDOM_BUFFERS).split()[-1]) > 0


def test_what_cannot_be_summed_exactly_is_refused(ulab):
    assert ulab(REFUSED) == "refused\n"
