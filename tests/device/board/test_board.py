"""device/main.py and the compiled modules run under MicroPython with the C stack of a Pico W and a board's heap.

Radio, clock and watchdog are stand-ins; the broker is real.
"""

import json
import re
import shutil
import sys

import pytest

from support import micropython as mp
from support.board_site import BOARD, SIGNED, BoardSite
from support.private_broker import PrivateBroker
from undertone_shared.off_board import intake

sys.path.append(str(mp.REPO / "scripts"))

from board_memory import FILES, FLASH, WIDE_KB, WIDE_SIGNED_KB

# The heap of a board with TLS, with its code in files or in flash, for words as long as this interpreter's.
HEAP_FILES = 1024 * WIDE_KB[FILES]
HEAP_FLASH = 1024 * WIDE_KB[FLASH]
HEAP_FLASH_SIGNED = 1024 * WIDE_SIGNED_KB[FLASH]


class Site(BoardSite):
    """A board with the smallest heap in which the program must run."""

    def run(self, *mode, image=None, program=BOARD / "drive.py", flash_heap=HEAP_FLASH):
        return super().run(HEAP_FILES if image is None else flash_heap, *mode, image=image, program=program)


# An owner types these lines on a board.
FORGET = """
from undertone_device.core import reset
from undertone_device.setup import assembly, clock
from undertone_device.setup.config import read_config
from undertone_device.setup.storage import FileStorage
config = read_config("device.json")
reset.forget_campaigns(FileStorage(config.state), assembly.read_policy(config), clock.unix_time())
print("forgotten")
"""


@pytest.fixture
def site(micropython, compiled, mosquitto_binary, tmp_path, free_port):
    sites = []
    with PrivateBroker(mosquitto_binary, tmp_path, free_port(), "localhost") as broker:

        def make(slot_seconds, **policy):
            sites.append(Site(broker, tmp_path, micropython, compiled, slot_seconds, **policy))
            return sites[-1]

        yield make
        for made in sites:
            made.close()


@pytest.mark.slow
@pytest.mark.waits
def test_a_board_on_mains_power(site):
    running = site(1)
    lines = running.run("3")
    # The radio is on before random numbers are read, NTP is asked again after its failure, and the watchdog is fed.
    assert lines[-1] == "['hostname', 'active', 'connect home'] 2 ntp.example True True"
    assert "undertone: online" in lines
    slots = running.slots(3)
    # If the machine is too busy for a second, the board skips a slot.
    assert slots == sorted(set(slots))


def test_a_board_refuses_a_source_that_it_does_not_have(site):
    running = site(1)
    settings = json.loads((running.folder / "device.json").read_text(encoding="utf-8"))
    settings["source"] = {"kind": "p1", "port": "/dev/ttyUSB0"}
    (running.folder / "device.json").write_text(json.dumps(settings), encoding="utf-8")
    assert "source.kind is 'p1'" in running.run("1")[-1]


def test_a_heap_that_is_too_small_is_one_sentence(site):
    """A board cannot start the .mpy files in 64 KB of heap, which is 128 KB with the long words of this interpreter."""
    result = site(1).start(2 * 64 * 1024, "1", program=BOARD / "drive.py")
    told = [line for line in result.stdout.splitlines() if "too small" in line]
    assert len(told) == 1
    assert re.fullmatch(r"undertone: the heap of 12\d KB is too small: freeze the code .*\(docs/boards.md\)", told[0])
    assert "MemoryError" not in result.stdout


@pytest.mark.waits
def test_a_board_whose_code_is_in_flash(site, rom):
    lines = site(1).run("3", image=rom)
    assert lines[-1].endswith("True True")


@pytest.mark.waits
def test_a_board_whose_code_is_in_flash_verifies_a_signature(site, rom):
    running = site(1, **SIGNED)
    assert running.run("2", image=rom, flash_heap=HEAP_FLASH_SIGNED)[-1].endswith("True True")


@pytest.mark.waits
def test_a_sleeper_whose_code_is_in_flash(site, rom):
    running = site(60)
    running.start_within_the_slot(20)
    for _ in range(4):
        assert running.run("sleep", image=rom)[-1].startswith("deepsleep")
    assert len(running.slots(1)) >= 1


@pytest.mark.waits
@pytest.mark.parametrize("form", [".mpy files", "in flash"])
def test_an_owner_forgets_the_campaigns_of_a_board(site, form, request):
    image = request.getfixturevalue("rom") if form == "in flash" else None
    running = site(1)
    running.run("2", image=image)
    names = {path.name.partition("-")[0] for path in (running.folder / "state").iterdir()}
    assert {"ledger", "campaign"} <= names
    ledger = (running.folder / "state/ledger").read_bytes()
    program = running.folder / "forget.py"
    program.write_text(FORGET, encoding="utf-8")
    assert running.run(image=image, program=program) == ["forgotten"]
    forgotten = (running.folder / "state/ledger").read_bytes()
    assert any(ledger[28:36])
    # The current and the next campaign are forgotten. What was drawn stays counted.
    assert forgotten[28:44] == bytes(16)
    assert forgotten[16:20] >= ledger[16:20] > bytes(4)


def test_code_on_trial_is_kept_once_it_has_reported(site, compiled):
    running = site(1)
    (running.folder / "code").write_text("lib lib2 2", encoding="utf-8")
    shutil.copytree(compiled, running.folder / "lib2")
    assert running.run("2")[-1].endswith("True True")
    assert (running.folder / "code").read_text(encoding="utf-8") == "lib2 lib2 0"


@pytest.mark.waits
def test_code_on_trial_that_cannot_even_be_loaded_gives_way_to_the_good_one(site, compiled):
    running = site(1)
    (running.folder / "code").write_text("lib lib2 2", encoding="utf-8")
    shutil.copytree(compiled, running.folder / "lib2")
    (running.folder / "lib2/undertone_device/core/slot_value.py").write_text("raise ValueError", encoding="utf-8")
    assert [running.run("2")[-1] for _ in range(2)] == ["reset", "reset"]
    assert running.run("2")[-1].endswith("True True")


@pytest.mark.waits
def test_a_board_that_sleeps_between_reports(site):
    """A wake-up does not count as a boot, because a clock that runs during the sleep shows when the board last drew."""
    running = site(60, boots_per_day=1)
    running.start_within_the_slot(20)
    for _ in range(6):
        assert running.run("sleep")[-1].startswith("deepsleep")
    slots = running.slots(4)
    assert len(slots) == 4, "the first two wakes only begin the ledger; no wake sends the report of the one before"
    assert slots == list(range(slots[0], slots[0] + 4))


@pytest.mark.waits
def test_a_board_whose_clock_stops_in_sleep_draws_once_per_boot_that_is_allowed(site):
    running = site(60, boots_per_day=1)
    running.start_within_the_slot(20)
    for _ in range(5):
        running.run("sleep")
        board = json.loads((running.folder / "board.json").read_text(encoding="utf-8"))
        (running.folder / "board.json").write_text(json.dumps({**board, "memory": "", "cause": 1}), encoding="utf-8")
    slots = set(running.slots(1))
    # The slots may lie on two days if midnight passes during the test.
    assert 1 <= len(slots) == len({60 * (slot + 1) // 86400 for slot in slots}) <= 2


@pytest.mark.slow_but("esp32", "rp2")
@pytest.mark.parametrize("port", ["esp32", "esp8266", "rp2", "mimxrt", "stm32"])
def test_every_port_runs_and_sleeps_with_the_names_that_it_has(site, port):
    running = site(60, boots_per_day=1000)
    running.start_within_the_slot(20)
    if port == "mimxrt":
        # This board has a cable and no Wi-Fi.
        settings = json.loads((running.folder / "device.json").read_text(encoding="utf-8"))
        del settings["wifi"]
        (running.folder / "device.json").write_text(json.dumps(settings), encoding="utf-8")
    # The first one or two wake-ups only begin the ledger.
    for _ in range(5):
        assert running.run("sleep", port)[-1].startswith("deepsleep")
        if running.slots():
            break
    # When the first report arrives, the board may already have slept to the next slot. A board without memory during
    # sleep then sends the first report again, with the same bytes and never a new draw.
    slots, payloads = set(running.slots(1)), set(running.payloads)
    assert len(slots) in (1, 2)
    assert {intake.unpack(payload).slot for payload in payloads} >= slots
    assert len(payloads) == len({intake.unpack(payload).slot for payload in payloads})


@pytest.mark.parametrize("port", ["esp32", "esp8266", "rp2", "mimxrt", "stm32"])
def test_a_stand_in_offers_exactly_the_names_of_its_port(micropython, tmp_path, port):
    script = f"""
import machine, port_names
board, net = machine.become({port!r})
import machine as again, network as cable
assert again is board and cable is net
for made, names in ((board, port_names.MACHINE[{port!r}]), (net, port_names.NETWORK[{port!r}])):
    assert set(name for name in dir(made) if name[:2] != "__") == set(names)
print(hasattr(board, "DEEPSLEEP_RESET"), hasattr(board.RTC, "memory"), hasattr(net, "WLAN"), hasattr(board, "Counter"))
"""
    result = micropython(script, cwd=tmp_path, paths=[BOARD, *mp.SOURCES])
    told = {
        "esp32": "True True True True",
        "esp8266": "True True True False",
        "rp2": "False False True False",
        "mimxrt": "False False False True",
        "stm32": "True False True False",
    }
    assert result.stdout.strip() == told[port], result.stdout


def test_a_sleep_longer_than_the_ports_timer_is_slept_in_parts(site):
    running = site(7200, boots_per_day=1000)
    running.start_within_the_slot(20, 7200)
    assert running.run("sleep", "rp2")[-1] == "deepsleep 3600000"
    # After this sleep, less than an hour of the slot may be left. So the clock is set again.
    running.start_within_the_slot(20, 7200)
    assert int(running.run("sleep", "esp32")[-1].split()[1]) > 3600000


def test_a_board_with_a_small_watchdog_on_mains_power(site):
    assert site(1).run("2", "rp2")[-1].endswith("True True")
