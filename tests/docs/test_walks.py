"""The walks through the guides run as a new user would run them, and use only commands that the guides show."""

import os
import re
import subprocess
import sys

import pytest

from support import micropython as mp
from support.ci import absent, unavailable
from undertone_aggregator.store.inventory import REVOKED
from undertone_aggregator.store.store import open_store

WALKS = mp.REPO / "docs/walk"
WALK = WALKS / "field.sh"
BOARD32 = mp.REPO / "tests/support/board32.mjs"
_COMMAND = re.compile(
    r"\bundertone ([a-z-]+(?: (?:run|status|add|rotate|revoke|list|show|create|diff|apply|retire)\b)?)"
)


def walk(folder, mosquitto_binary, interpreter):
    places = [os.path.dirname(sys.executable), os.path.dirname(mosquitto_binary), os.environ["PATH"]]
    environment = os.environ | {"PATH": os.pathsep.join(places), "MICROPYTHON": str(interpreter), "COLUMNS": "120"}
    done = subprocess.run(
        [str(WALK), str(folder)], env=environment, capture_output=True, encoding="utf-8", timeout=800, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "Traceback" not in done.stdout + done.stderr
    assert done.stdout.rstrip().endswith("Both columns add up: nothing is unexplained.")
    with open_store(folder / "home/stores/energy.sqlite", read_only=True) as store:
        counted = {device for device, _, outcome in store.audit() if outcome == "counted"}
        assert counted == {f"energy-{number:03d}" for number in range(1, 11)}
        assert store.devices()["energy-002"].state == REVOKED
    reported = {
        tuple(line.split()[1:3]) for line in (folder / "gateway.ledger").read_text(encoding="utf-8").splitlines()
    }
    assert reported == {(word, f"energy-{number:03d}") for word in ("sent", "acked") for number in range(4, 10)}


@pytest.mark.slow
@pytest.mark.services
@pytest.mark.micropython32
def test_a_fleet_in_the_field(tmp_path, mosquitto_binary):
    """The fleet's boards have words of 32 bits."""
    walk(tmp_path / "walk", mosquitto_binary, f"{mp.interpreter32() or unavailable(mp.MISSING32)} {BOARD32}")


@pytest.mark.slow
@pytest.mark.micropython
def test_a_fleet_of_unix_ports(tmp_path, mosquitto_binary):
    walk(tmp_path / "walk", mosquitto_binary, mp.interpreter() or unavailable(mp.MISSING))


@pytest.mark.slow
def test_a_fleet_of_boards_with_floats_of_32_bits(tmp_path, mosquitto_binary):
    if (interpreter := mp.ulab_interpreter("32")) is None:
        absent(f"no interpreter with 32-bit floats in {mp.ulab_folder()}")
    walk(tmp_path / "walk", mosquitto_binary, interpreter)


@pytest.mark.long
@pytest.mark.services
def test_an_operators_first_half_hour_in_short(tmp_path, mosquitto_binary):
    """Restarts, a kill, new passwords, a changed plan, a full disk, a retired campaign. All reports stay explained."""
    places = [os.path.dirname(sys.executable), os.path.dirname(mosquitto_binary), os.environ["PATH"]]
    environment = os.environ | {"PATH": os.pathsep.join(places), "COLUMNS": "120"}
    environment.pop("WHEELS", None)
    done = subprocess.run(
        [str(WALKS / "operator.sh"), str(tmp_path / "walk"), "24", "8"],
        env=environment, capture_output=True, encoding="utf-8", timeout=800, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    log = (tmp_path / "walk/serve.log").read_text(encoding="utf-8")
    assert "Traceback" not in done.stdout + done.stderr + log
    assert done.stdout.count("Both columns add up: nothing is unexplained.") == 2
    for said in ("connected again to the broker", "cannot be written", "takes up its changed plan", "is retired"):
        assert said in log
    for name in ("electricity", "water"):
        with open_store(tmp_path / "walk/home/stores" / f"{name}.sqlite", read_only=True) as store:
            assert len({device for device, _, outcome in store.audit() if outcome == "counted"}) == 8


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.services
def test_a_backup_brings_a_server_up_in_an_empty_folder(tmp_path):
    """The walk has six commands up to the first number, and then the exercise of the guide to backups.

    The walk must not start mosquitto.
    """
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "mosquitto").write_text(f"#!/bin/sh\ntouch {tmp_path}/mosquitto\nexit 1\n", encoding="utf-8")
    (programs / "mosquitto").chmod(0o755)
    path = os.pathsep.join([str(programs), os.path.dirname(sys.executable), os.environ["PATH"]])
    done = subprocess.run(
        [str(WALKS / "backup.sh"), str(tmp_path / "walk")],
        env=os.environ | {"PATH": path, "COLUMNS": "120", "LIMIT": "600"},
        capture_output=True, encoding="utf-8", timeout=800, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "Traceback" not in done.stdout + done.stderr + (tmp_path / "walk/serve.log").read_text(encoding="utf-8")
    assert not (tmp_path / "mosquitto").exists()
    seen = []
    for home in ("home", "new"):
        with open_store(tmp_path / "walk" / home / "stores/power.sqlite", read_only=True) as store:
            seen.append(({device for device, *_ in store.audit()}, store.newest_slot()))
    (_, before), (devices, after) = seen
    assert devices == {f"power-{number:03d}" for number in range(1, 51)}
    assert after > before


@pytest.mark.parametrize(("page", "walk"), [("operator", "first"), ("operator", "backup")])
def test_a_walk_has_the_lines_of_its_guide(page, walk):
    text = (mp.REPO / "docs" / f"{page}.md").read_text("utf-8")
    (block,) = re.findall(rf"<!-- not run: [^>]*docs/walk/{walk}.sh[^>]* -->\n```sh\n(.*?)```", text, re.DOTALL)
    script = (WALKS / f"{walk}.sh").read_text("utf-8")
    # The walk uses free ports instead of the guide's.
    for name, port in (("$port", "1883"), ("$page", "127.0.0.1:8000"), ("$health", "127.0.0.1:9464")):
        script = script.replace(f'"{name}"', port)
    assert [line for line in block.splitlines() if line not in script.splitlines()] == []
    if walk == "first":
        assert len(re.findall("^undertone ", block, re.MULTILINE)) == 6


@pytest.mark.parametrize("walk", sorted(WALKS.glob("*.sh")), ids=lambda walk: walk.stem)
def test_each_step_is_a_command_of_the_guides(walk):
    guides = " ".join(
        path.read_text("utf-8")
        for folder in ("docs", "device", "aggregator")
        for path in (mp.REPO / folder).glob("*.md")
    )
    # `undertone device` of the server's package is the command of the device's package.
    shown = set(_COMMAND.findall(guides.replace("undertone-device ", "undertone device ")))
    used = set(_COMMAND.findall(walk.read_text("utf-8")))
    assert len(used) >= 4
    assert used <= shown
