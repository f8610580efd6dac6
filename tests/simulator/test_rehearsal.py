"""A fleet on the files of a server's folder: the revoked stay away, all follow a move, and it says its accounts."""

import signal
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from support.command import undertone
from support.started import started
from support.waiting import wait_for
from undertone_aggregator.store.store import open_store
from undertone_operate.fleet.read_devices import read_provisioned


def done(*words: object) -> str:
    finished = undertone(*words)
    assert finished.returncode == 0, (words, finished.stdout, finished.stderr)
    return finished.stdout


def made(folder: Path, free_port: Callable[[], int], slot: int, cycle: int, *init: object) -> Path:
    """A server's folder with a campaign and six devices."""
    done("init", folder, "--port", free_port(), "--health", f"127.0.0.1:{free_port()}", "--audit", *init)
    plan = ("--slot-seconds", slot, "--set", f"cycle={cycle}", "--rounds", cycle, "--set", "report_slots=5000")
    sensor = ("--sensor", "load", "--unit", "Wh", "--bound", 10000, "--epsilon", 1)
    done("campaign", "create", folder, "power", *sensor, *plan)
    done("devices", "add", 6, "--home", folder)
    return folder


@pytest.fixture
def home(tmp_path: Path, free_port: Callable[[], int]) -> Path:
    return made(tmp_path / "home", free_port, 1, 4)


def counted(home: Path) -> int:
    store = home / "stores/power.sqlite"
    if not store.exists():
        return 0
    with open_store(store, read_only=True) as opened:
        return opened.outcomes()["counted"]


@pytest.mark.long
def test_a_fleet_passes_over_the_revoked_follows_a_move_and_says_its_accounts_when_it_is_stopped(
    home: Path, tmp_path: Path, free_port: Callable[[], int]
) -> None:
    done("devices", "revoke", "power-003", "--home", home)
    assert [member.name[-1] for member in read_provisioned(home / "fleets/power")] == list("12456")
    out, said = tmp_path / "out", tmp_path / "fleet.log"
    fleet_words = ("fleet", "--fleet", home / "fleets/power", "--clients", 5, "--slots", 5000, "--output", out)
    serve_words = (tmp_path / "serve.log", "serve", home)

    def more_than(number: int) -> None:
        wait_for(lambda: counted(home) > number)

    port = free_port()
    with started(said, *fleet_words) as fleet:
        with started(*serve_words):
            more_than(20)
            with socket.create_server(("127.0.0.1", port)) as elsewhere:
                elsewhere.settimeout(120)
                done("move", home, f"127.0.0.1:{port}")
                # Each device has heard the request when it knocks at the new address, where nobody answers yet.
                for _ in range(5):
                    elsewhere.accept()[0].close()
            before = counted(home)
            more_than(before + 5)
        with started(*serve_words):
            more_than(counted(home) + 20)
            fleet.send_signal(signal.SIGTERM)
            assert fleet.wait(60) == 0, said.read_text(encoding="utf-8")
            ledger = ("--ledger", out / "fleet.ledger", "--store", home / "stores/power.sqlite")
            wait_for(lambda: undertone("verify", *ledger).returncode == 0)
    words = said.read_text(encoding="utf-8")
    assert "5 clients: " in words
    assert f"--ledger {out / 'fleet.ledger'}" in words.replace("\n", "")
    with open_store(home / "stores/power.sqlite", read_only=True) as store:
        assert {device for device, *_ in store.audit()} == {f"power-00{number}" for number in (1, 2, 4, 5, 6)}
