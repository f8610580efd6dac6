"""The whole device on a heap of 96 KB of a 32-bit MicroPython, against a real broker.

Memory does not grow, and no report is lost. The heap holds the .mpy files and a campaign of the largest size that the
server makes by default. The clock and the ticks are injected or real.
"""

import json
import re
import time
from pathlib import Path

import pytest
from soak_server import Server

from support import micropython as mp
from support.ci import unavailable
from support.private_broker import PrivateBroker

HERE = Path(__file__).parent
# Between two steps, 76 KB of this heap are in use. The rest must hold the garbage of one step, because this interpreter
# collects garbage only between steps; checking that a campaign's JSON is canonical makes 12 KB of garbage. A board also
# collects garbage during a step.
HEAP = 96 * 1024
POLICY = {
    "version": 1,
    "sensor": "energy",
    "measures": ["sum"],
    "cap": [2850, 1000],
    "theta": [1, 4000],
    "duration_seconds": 400 * 86400,
    "reports_per_period": 86400,
    "insecure": True,
}
DEVICE = {
    "name": "board-1",
    "broker": {"host": "broker.example"},
    "campaigns": ["load"],
    "policy": "/policy.json",
    "state": "/state",
    "publish": {"spread_percent": 10},
    "wifi": {"ssid": "home", "password": "secret"},
}


@pytest.fixture
def run(compiled, mosquitto_binary, tmp_path, free_port):
    def run(slots: int, seconds: int, *, injected: bool) -> None:
        if mp.interpreter32() is None:
            unavailable(mp.MISSING32)
        files = {
            "/lib/heap_rig.mpy": mp.compile_mpy(HERE / "heap_rig.py", tmp_path, optimise=3)[0],
            "/device.json": json.dumps(DEVICE),
            "/policy.json": json.dumps({**POLICY, "slot_seconds": seconds}),
        }
        with PrivateBroker(mosquitto_binary, tmp_path, free_port()) as broker:
            # The number of bins that the server uses by default.
            server = Server(broker.port, seconds, bins=128)
            try:
                result = mp.run_micropython32(
                    (HERE / "heap_device.py").read_text(encoding="utf-8"),
                    str(slots),
                    str(int(time.time()) // seconds * seconds if injected else 0),
                    files=files,
                    library=[compiled],
                    heap=HEAP,
                    port=broker.port,
                    timeout=1800,
                )
                print(result.stdout)
                assert result.returncode == 0, result.stdout + result.stderr
                server.check(slots, check(result.stdout, injected), injected=injected)
            finally:
                server.close()

    return run


def check(output: str, injected: bool) -> int:
    """Check the output, and return the number of reports that the device sent."""
    assert int(re.search(r"GC: total: (\d+)", output)[1]) <= HEAP, "the heap has grown"
    heaps, files, descriptors = zip(*re.findall(r"^heap (\d+) (\d+) (\d+)$", output, re.MULTILINE), strict=True)
    assert len(heaps) == 10
    used = [int(bytes) for bytes in heaps]
    # A dictionary or a buffer may differ in size by a little, but the use of the heap must not grow from one tenth of
    # the slots to the next.
    assert max(used[2:]) <= used[1] + 256, used
    assert len(set(files)) == len(set(descriptors)) == 1, "no more files and descriptors are open"
    # With the real clock, the device waits a moment before the next slot if a report came late.
    paused = "None" if injected else "(?:None|rate)"
    return int(re.search(rf"^end (\d+) \1 0 0 {paused}$", output, re.MULTILINE)[1])


def test_a_few_hundred_slots_on_an_injected_clock(run):
    run(300, 60, injected=True)


@pytest.mark.slow
def test_ten_thousand_slots_on_an_injected_clock(run):
    run(10_000, 60, injected=True)


@pytest.mark.slow
def test_sixty_slots_on_the_real_clock(run):
    run(60, 1, injected=False)
