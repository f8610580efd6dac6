"""The whole device, .mpy files and a campaign of 1.7 KB included, within a heap of 64 KB on a 32-bit MicroPython."""

import json
import re
from pathlib import Path

import pytest
from rig import make_campaign

from support import micropython as mp
from support.ci import unavailable
from undertone_shared import issue
from undertone_shared.campaign import Cohort, ReportRule
from undertone_shared.mechanism import Hybrid, WindowMechanism

HERE = Path(__file__).parent
HEAP = 64 * 1024
EPOCH = 1_800_000_000
POLICY = {
    "version": 1,
    "sensor": "energy",
    "measures": ["sum"],
    "cap": [2850, 1000],
    "slot_seconds": 60,
    "theta": [1, 4000],
    "duration_seconds": 400 * 86400,
    "reports_per_period": 1440,
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


@pytest.fixture(scope="module")
def boards(tmp_path_factory):
    """What boards load, and the broker, as .mpy files."""
    out = tmp_path_factory.mktemp("boards")
    mp.compile_boards(out)
    return out


@pytest.fixture
def run(boards, tmp_path):
    """Run slots of a minute on a heap of 64 KB."""

    def run(slots: int) -> None:
        if mp.interpreter32() is None:
            unavailable(mp.MISSING32)
        # 128 bins, as the aggregator issues them.
        edges = tuple(range(0, 129 * 31, 31))
        part = WindowMechanism(2721, 1001, 621, 4, 256, None, 2)
        campaign = make_campaign(
            slot_seconds=60,
            bound=4000,
            epoch=EPOCH,
            last_slot=EPOCH // 60 + 20000,
            cohort=Cohort(bytes(16), 1 << 22, WindowMechanism(2721, 1001, 33, 1, 127, edges)),
            report=ReportRule(0, 3000, Hybrid(25784, WindowMechanism(2721, 1001, 1, 1, 1), part)),
        )
        message = tmp_path / "campaign"
        message.write_bytes(issue.pack(campaign, EPOCH))
        files = {
            "/campaign": message,
            "/lib/heap_rig.mpy": mp.compile_mpy(HERE / "heap_rig.py", tmp_path, optimise=3)[0],
            "/policy.json": json.dumps(POLICY),
            "/device.json": json.dumps(DEVICE),
            # This build has neither; on a board they are part of the firmware.
            "/lib/socket.py": "",
            "/lib/select.py": "",
        }
        code = (HERE / "heap_device.py").read_text()
        result = mp.run_micropython32(
            code,
            *(str(number) for number in (slots, EPOCH, message.stat().st_size)),
            files=files,
            library=[boards],
            heap=HEAP,
            calls=2 * slots,
            timeout=600,
        )
        assert result.returncode == 0, result.stdout + result.stderr
        print(result.stdout)
        check(slots, result.stdout)

    return run


def check(slots: int, output: str) -> None:
    assert int(re.search(r"GC: total: (\d+)", output)[1]) <= HEAP, "the heap has grown"
    heaps = [int(used) for used in re.findall(r"^heap (\d+)", output, re.MULTILINE)]
    assert len(heaps) == 11
    # Between tenths only what is garbage differs.
    assert max(heaps[2:]) <= heaps[1] + 512, heaps
    # The newest report may still be held back.
    received = int(re.search(r"^end (\d+) \1 \1 0 [01]\npaused None $", output, re.MULTILINE)[1])
    assert received >= slots - 2


def test_a_few_hundred_slots(run):
    run(300)


@pytest.mark.slow
def test_ten_thousand_slots(run):
    run(10_000)
