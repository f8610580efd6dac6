"""The time of a slot on an emulated Cortex-M3, measured for scripts/board_results.py.

MicroPython's qemu port runs on QEMU's MPS2 board with the device's code frozen into it, as in `device/manifest.py`.
QEMU counts 32 ns of the board's time for every instruction, that is 31.25 million instructions a second, whatever else
the PC does. It needs Debian or Ubuntu, the packages qemu-system-arm, gcc-arm-none-eabi and libnewlib-arm-none-eabi, and
the sources that `scripts/board_sources.sh` fetches.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

REPO = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(REPO / "tests")]

from support import micropython as mp  # noqa: E402
from undertone_aggregator.design.table import LEVELS, optimal_table  # noqa: E402

WORK = REPO / ".tools/board/build"
PLACE = WORK / "emulated"
HEAP_KB = 64

# os.urandom: xorshift, about as fast as reading a hardware generator's register.
URANDOM = """\
static mp_obj_t mp_os_urandom(mp_obj_t number) {
    static uint32_t state = 1;
    vstr_t bytes;
    vstr_init_len(&bytes, mp_obj_get_int(number));
    for (size_t i = 0; i < bytes.len; i++) {
        if (i % 4 == 0) {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
        }
        bytes.buf[i] = state >> (8 * (i % 4));
    }
    return mp_obj_new_bytes_from_vstr(&bytes);
}
static MP_DEFINE_CONST_FUN_OBJ_1(mp_os_urandom_obj, mp_os_urandom);
"""
# The port has no module time; the board has a counter of 20 MHz.
TIME = """\
import machine


def ticks_us():
    return machine.mem32[0x40028018] // 20


def ticks_diff(end, start):
    return end - start
"""
GUEST = """\
import gc
import time

import campaigns
import measure

SLOTS = 200


def row(name, what, started, count):
    print("%s: %s: %d" % (name, what, time.ticks_diff(time.ticks_us(), started) // count))


def main():
    for name in campaigns.MESSAGES:
        client, clock = measure.device(campaigns.MESSAGES[name])
        for _ in range(5):
            clock.advance(60)
            client.step(0)
        assert client.reporter.campaign is not None, client.trouble
        gc.collect()
        started = time.ticks_us()
        for _ in range(SLOTS):
            clock.advance(60)
            client.step(0)
        row(name, "slot", started, SLOTS)
        assert client.counts["acked"] > SLOTS, client.trouble
        gc.collect()
        started = time.ticks_us()
        gc.collect()
        row(name, "collection", started, 1)
        gc.disable()
        reporter = client.reporter
        campaign = reporter.campaign
        slot = clock.now // 60
        refills = draws = writes = slots = 0
        for i in range(SLOTS):
            gc.collect()
            started = time.ticks_us()
            reporter.entropy.refill()
            filled = time.ticks_us()
            reporter._draw(campaign, slot + i, 15 * i)
            drawn = time.ticks_us()
            reporter.ledger.write(clock.now, 0, 0)
            written = time.ticks_us()
            clock.advance(60)
            client.step(0)
            slots += time.ticks_diff(time.ticks_us(), written)
            refills += time.ticks_diff(filled, started)
            draws += time.ticks_diff(drawn, filled)
            writes += time.ticks_diff(written, drawn)
        gc.enable()
        totals = {"refill": refills, "draw": draws, "write": writes, "slot without collections": slots}
        for what in totals:
            print("%s: %s: %d" % (name, what, totals[what] // SLOTS))
        del client, clock, reporter, campaign


# The raw REPL has begun a line.
print()
main()
"""
MANIFEST = """\
include("{repo}/device/manifest.py")
module("measure.py", base_path="{repo}/device", opt=3)
for name in ("time", "campaigns", "guest"):
    module(name + ".py", opt=0)
"""
ROWS = {
    "slot": "**one slot**: sample, draw, ledger, publish, acknowledge",
    "slot without collections": "without collecting garbage",
    "refill": "part of it: 256 random bytes and their test",
    "draw": "part of it: the draw and its encoding",
    "write": "part of it: the ledger's bytes and their hash",
    "collection": "one collection of garbage",
}


def messages() -> dict[str, bytes]:
    """Return name -> message of a campaign, for each mechanism. In each campaign ε is 1.

    A device draws one report in each slot. One report in five is for the threshold; a square wave of 256 bins draws
    it. In the square wave's campaign all reports are for the threshold.
    """
    done = mp.run_micropython(
        "import measure\nprint(measure.message().hex())", paths=[REPO / "device", REPO / "shared"], cwd=PLACE
    )
    packed = bytes.fromhex(done.stdout)
    header, body, signature = packed[:8], json.loads(packed[12:-64]), packed[-64:]
    density = [2 ** (-8 * level / LEVELS) for level in range(LEVELS + 1)]
    table = optimal_table("1", 3000, density=[share / sum(density) for share in density])
    fields = {
        "designed table": body | {"rule": body["rule"] | {"mechanism": table.describe()}},
        "Hybrid": body,
        "square wave": body
        | {
            "rule": body["rule"] | {"mechanism": None, "ranges": []},
            "schedule": body["schedule"] | {"cohort_stride": 1},
        },
    }
    made = {}
    for name, campaign in fields.items():
        text = json.dumps(campaign, sort_keys=True, separators=(",", ":")).encode()
        made[name] = header + len(text).to_bytes(4, "big") + text + signature
    return made


def build() -> Path:
    """Build the firmware with the code as it is now; return its file."""
    subprocess.run([REPO / "scripts/board_sources.sh"], check=True)
    PLACE.mkdir(exist_ok=True)
    files = {
        "urandom.h": URANDOM,
        "time.py": TIME,
        "guest.py": GUEST,
        "campaigns.py": f"MESSAGES = {messages()!r}\n",
        "manifest.py": MANIFEST.format(repo=REPO),
        "README.md": "",
    }
    for name, text in files.items():
        (PLACE / name).write_text(text, encoding="utf-8")
    target = WORK / "build-emulated"
    # Without this file make reads the manifest again, and so freezes the code as it is now.
    (target / "frozen_content.c").unlink(missing_ok=True)
    include = f"-DMICROPY_PY_OS_INCLUDEFILE='\"{PLACE}/urandom.h\"'"
    done = subprocess.run(
        [
            *("make", "--silent", f"-j{os.cpu_count()}", "-C", WORK / "micropython/ports/qemu", "BOARD=MPS2_AN385"),
            *(f"FROZEN_MANIFEST={PLACE}/manifest.py", f"BUILD={target}", f"MPY_LIB_DIR={PLACE}"),
            *(f"MICROPY_HEAP_SIZE={1024 * HEAP_KB}", f"CFLAGS_EXTRA=-DMICROPY_PY_OS_URANDOM=1 {include}"),
        ],
        capture_output=True,
        encoding="utf-8",
    )
    if done.returncode:
        raise SystemExit(done.stderr[-2000:])
    return target / "firmware.elf"


def run(firmware: Path) -> dict[tuple[str, str], int]:
    """Return microseconds by mechanism and row. Raises SystemExit with what the board printed if it failed."""
    done = subprocess.run(
        [
            *("qemu-system-arm", "-machine", "mps2-an385", "-nographic", "-monitor", "null", "-semihosting"),
            *("-icount", "shift=5", "-serial", "stdio", "-kernel", str(firmware)),
        ],
        # The raw REPL: run the program, then switch the board off.
        input=b"\x01import guest, machine\nmachine.reset()\x04\x02import machine\rmachine.reset()\r",
        capture_output=True,
        timeout=600,
    )
    text = done.stdout.decode(errors="replace")
    if "Traceback" in text:
        raise SystemExit(text)
    return {(name, what): int(value) for name, what, value in re.findall(r"([\w ]+): ([\w ]+): (\d+)\r?$", text, re.M)}


def slot_rows() -> dict[str, dict[str, int]]:
    """Return the microseconds of a slot: mechanism -> row -> value."""
    rows: dict[str, dict[str, int]] = {}
    for (name, what), value in run(build()).items():
        rows.setdefault(name, {})[what] = value
    return rows
