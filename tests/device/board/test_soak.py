"""The device as a board runs it, from .mpy files and in a board's heap, for many slots against a real broker.

Memory does not grow, and no report is lost. The heap is 96 KB of 32-bit words. This 64-bit interpreter has words twice
as long, so that `96wk` gives it 192 KB.
"""

import subprocess
from pathlib import Path

import pytest
from soak_server import Server

from support.private_broker import PrivateBroker

SCRIPT = Path(__file__).with_name("soak_device.py")
HEAP = "96wk"


@pytest.fixture
def soak(micropython, mosquitto_binary, tmp_path, free_port, compiled):
    def run(slots: int, kind: str) -> None:
        with PrivateBroker(mosquitto_binary, tmp_path, free_port()) as broker:
            server = Server(broker.port, 60 if kind == "injected" else 1, bins=256)
            try:
                state = tmp_path / "state"
                result: subprocess.CompletedProcess[str] = micropython(
                    SCRIPT,
                    "127.0.0.1",
                    str(broker.port),
                    "soak",
                    str(slots),
                    str(state),
                    kind,
                    heap=HEAP,
                    paths=[compiled],
                    timeout=900,
                )
                print(result.stdout)
                assert result.returncode == 0, result.stdout + result.stderr
                lines = [line.split() for line in result.stdout.splitlines()]
                check(lines, injected=kind == "injected")
                server.check(slots, int(lines[-1][1]), injected=kind == "injected")
            finally:
                server.close()

    return run


def check(lines, *, injected):
    assert lines[-1][0] == "end"
    assert lines[-1][1:5] == [lines[-1][1], lines[-1][1], "0", "0"], lines[-1]
    # If a report came late, the device waits a moment before the next slot.
    assert lines[-1][5] == "None" or (lines[-1][5] == "rate" and not injected), lines[-1]
    free = [int(line[1]) for line in lines if line[0] == "free"]
    assert len(free) >= 5
    # A dictionary or a buffer may differ in size by 256 bytes, but the use of memory must not grow from one tenth of
    # the slots to the next.
    assert min(free[1:]) >= free[1] - 256, free
    assert len({line[2] for line in lines if line[0] == "free"}) == 1, "no more descriptors are open"


@pytest.mark.slow
def test_a_few_hundred_slots_on_an_injected_clock(soak):
    soak(250, "injected")


@pytest.mark.waits
def test_a_few_slots_on_the_real_clock(soak):
    soak(5, "real")


@pytest.mark.slow
def test_ten_thousand_slots_on_an_injected_clock(soak):
    soak(10_000, "injected")


@pytest.mark.slow
def test_sixty_slots_on_the_real_clock(soak):
    soak(60, "real")
