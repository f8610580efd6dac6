"""The guides from a meter to the first report, followed with their own settings and programs.

A recorded frame of a meter, whose register rises, comes over a stand-in for the board's UART or over a pseudo-terminal.
Only times are shorter than in the guides, and ports and folders are those of the test.
"""

import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import threading
import tty
from pathlib import Path

import pytest

from support import micropython as mp
from support.board_site import BoardSite
from support.factory import policy_of
from support.private_broker import PrivateBroker
from support.waiting import wait_for
from undertone_device.sensors.crc import ARC, X25, crc16

sys.path.append(str(mp.REPO / "scripts"))

from board_memory import FILES, WIDE_KB
from frames import SML, TELEGRAM

from support.ci import ABSENT, pseudo_terminal

_BLOCK = re.compile(r"```(\w+)\n([\s\S]*?)```|((?:^    .+\n)+)", re.MULTILINE)


def blocks(page, kind):
    """Texts of the blocks of one kind on a page; indented blocks are of the kind ``commands``."""
    text = (mp.REPO / "docs" / page).read_text("utf-8")
    return [fenced or indented for name, fenced, indented in _BLOCK.findall(text) if (name or "commands") == kind]


def settings(page):
    """The fields that the page adds to device.json."""
    [text] = blocks(page, "json")
    return json.loads(text)


def telegram(energy):
    """The recorded P1 telegram with both registers at ``energy`` Wh."""
    body = re.sub(rb"(1-0:1\.8\.[12])\([\d.]+", b"\\1(%06d.%03d" % divmod(energy, 1000), TELEGRAM)
    body = body[: body.index(b"!") + 1]
    return body + b"%04X\r\n" % crc16(body, ARC, 0)


def sml(energy):
    """The recorded SML file with the register 1.8.0 at ``energy`` tenths of a Wh."""
    at = SML.index(b"\x52\xff\x65") + 3
    body = SML[:at] + energy.to_bytes(4, "big") + SML[at + 4 : -2]
    crc = crc16(body, X25, 0xFFFF) ^ 0xFFFF
    return body + bytes([crc & 255, crc >> 8])


@pytest.mark.waits
@pytest.mark.micropython
@pytest.mark.broker
def test_an_esp32_on_a_dutch_or_belgian_meter(micropython, compiled, mosquitto_binary, tmp_path, free_port):
    [program] = blocks("esp32-p1.md", "python")
    with PrivateBroker(mosquitto_binary, tmp_path, free_port(), "localhost") as broker:
        board = BoardSite(broker, tmp_path, micropython, compiled, 1, measure="counter")
        (tmp_path / "sensor.py").write_text(program, encoding="utf-8")
        (tmp_path / "uart.bin").write_bytes(b"".join(telegram(1000 + 7 * n) for n in range(600)))
        device = json.loads((tmp_path / "device.json").read_text(encoding="utf-8")) | settings("esp32-p1.md")
        # The guide's ten seconds belong to a half-hour; a slot here takes one second.
        device["source"]["seconds"] = 1
        (tmp_path / "device.json").write_text(json.dumps(device), encoding="utf-8")
        assert board.run(1024 * WIDE_KB[FILES], "3")[-1].endswith("True True")
        assert len(board.slots(3)) >= 3
        board.close()


@pytest.mark.long
@pytest.mark.services
def test_a_raspberry_pi_on_a_german_meter(tmp_path, free_port):
    """The guide's own commands, with a server beside it; the meter sends a frame five times a second."""
    places = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
    environment = os.environ | {"PATH": places, "COLUMNS": "120"}

    def run(*words):
        done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, encoding="utf-8", check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def start(name, *words):
        with (tmp_path / name).open("w", encoding="utf-8") as log:
            return subprocess.Popen(words, cwd=tmp_path, env=environment, stdout=log, stderr=subprocess.STDOUT)

    pages = ("sensors.md", "pi-sml.md")
    commands = [line for page in pages for block in blocks(page, "commands") for line in block.splitlines()]
    create = next(line for line in commands if "campaign create" in line)
    add = next(line for line in commands if "devices add" in line)
    follow = next(line for line in commands if "device run" in line)
    run("undertone", "init", "home", "--audit", "--port", str(free_port()), "--health", f"127.0.0.1:{free_port()}")
    short = ["--slot-seconds", "1", "--set", "cycle=4", "--set", "rounds=[4]", "--set", "report_slots=4000"]
    run(*shlex.split(create), *short)
    run(*shlex.split(add))
    [folder] = (tmp_path / "home/fleets/energy/devices").iterdir()
    meter, line = pseudo_terminal()
    tty.setraw(meter)
    tty.setraw(line)
    device = json.loads((folder / "device.json").read_text(encoding="utf-8")) | settings("pi-sml.md")
    device["source"]["port"] = os.ttyname(line)
    device["state"] = str(tmp_path / "state")
    (folder / "device.json").write_text(json.dumps(device), encoding="utf-8")
    unplugged = threading.Event()

    def send():
        energy = 791393
        while not unplugged.wait(0.2):
            os.write(meter, sml(energy))
            energy += 3

    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    server = start("serve.log", "undertone", "serve", "home")
    pi = None
    try:
        as_user, words = shlex.split(follow)[:3], shlex.split(follow)[3:]
        assert as_user == ["sudo", "-u", "undertone"]
        words[0] = words[0].rpartition("/")[2]
        words[words.index("--config") + 1] = str(folder / "device.json")
        pi = start("device.log", *words, "--ledger", "pi.ledger")
        ledger = tmp_path / "pi.ledger"
        wait_for(
            lambda: ledger.exists() and ledger.read_text(encoding="utf-8").count("acked ") >= 3, 60, "three reports"
        )
        assert "energy" in run("undertone", "device", "status", "--config", str(folder / "device.json"))
    except AssertionError:
        print(
            (tmp_path / "serve.log").read_text(encoding="utf-8")[-2000:],
            (tmp_path / "device.log").read_text(encoding="utf-8")[-2000:],
        )
        raise
    finally:
        for process in (pi, server):
            if process is not None:
                process.terminate()
                process.wait(20)
        unplugged.set()
        thread.join()
        os.close(meter)
        os.close(line)
    run("undertone", "verify", "--store", "home/stores/energy.sqlite", "--ledger", "pi.ledger")


# The interpreter itself may be in a folder that only root reads, so the user changes after the imports.
_AS_USER = """
import os, shutil, sys
from undertone_device.__main__ import main
user = int(sys.argv.pop(1))
os.setgroups([])
os.setgid(user)
os.setuid(user)
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason=ABSENT + "root, who may make another user's folders and become that user")
def test_the_pis_commands_run_as_the_guides_user_with_the_guides_rights():
    """`status` answers the folders' owner, and refuses everybody else in a sentence."""
    lines = [line.strip() for block in blocks("pi-sml.md", "commands") for line in block.splitlines()]
    runs = [line for line in lines if "undertone-device run" in line or "undertone-device status" in line]
    assert len(runs) == 2
    assert all(line.startswith("sudo -u undertone ") for line in runs)
    owner, other = 54321, 54322
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        for part in ("etc", "lib"):
            (folder / part).mkdir(mode=0o700)
        device = {"name": "m", "broker": {"host": "h"}, "campaigns": ["c"], "policy": "policy.json"}
        device["state"] = str(folder / "lib")
        (folder / "etc/device.json").write_text(
            json.dumps(device | {"source": settings("pi-sml.md")["source"]}), encoding="utf-8"
        )
        (folder / "etc/policy.json").write_text(json.dumps(policy_of()), encoding="utf-8")
        for path in (folder / "etc", folder / "lib", *(folder / "etc").iterdir()):
            os.chown(path, owner, owner)
        said = {}
        for user in (owner, other):
            command = [sys.executable, "-c", _AS_USER, str(user), "status", "--config", str(folder / "etc/device.json")]
            said[user] = subprocess.run(command, cwd="/", capture_output=True, encoding="utf-8", check=False)
    assert "Permission denied" not in said[owner].stdout + said[owner].stderr
    assert "Permission denied" in said[other].stderr
    assert "Traceback" not in said[owner].stderr + said[other].stderr
