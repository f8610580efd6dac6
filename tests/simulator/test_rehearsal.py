"""A fleet with the files of a server's folder.

Revoked devices stay away, all devices follow a move, and the fleet prints its accounts.
"""

import contextlib
import signal
import socket
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from support.command import undertone
from support.started import started
from support.waiting import wait_for
from undertone_aggregator.campaign.state import CampaignState, read_state
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


@pytest.mark.slow
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
                # Each device has got the request when it tries the new address, where nobody answers yet.
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


@pytest.mark.slow
@pytest.mark.services
def test_real_devices_come_back_after_a_restore_from_a_backup_that_is_older_than_an_extension(
    tmp_path: Path, free_port: Callable[[], int]
) -> None:
    """The restored server does not know the epoch of the extension, and says so until the devices follow a new one.

    A slot lasts three seconds and a cycle nearly two minutes.
    """
    page = f"127.0.0.1:{free_port()}"
    home, new, out = made(tmp_path / "home", free_port, 3, 36, "--page", page), tmp_path / "new", tmp_path / "out"
    said, log = tmp_path / "fleet.log", tmp_path / "new.log"
    fleet_words = ("fleet", "--fleet", home / "fleets/power", "--clients", 6, "--slots", 5000, "--output", out)

    def reports(number: int) -> bool:
        """Whether devices report in the epoch with this number."""
        with open_store(home / "stores/power.sqlite", read_only=True) as store:
            epochs, newest = store.epochs(), store.newest_slot()
        return len(epochs) > number and (newest or 0) >= epochs[number].campaign.first_slot

    def strays() -> int:
        served = read_state(new / "state.json")
        return 0 if served is None or "power" not in served.campaigns else served.campaigns["power"].strays

    def of_page() -> str:
        """What the page shows of the campaign, or "" while the page's process starts."""
        with contextlib.suppress(OSError), urllib.request.urlopen(f"http://{page}/api/v1/campaigns/power") as answer:
            return str(answer.read(), "utf-8")
        return ""

    with started(said, *fleet_words) as fleet:
        with started(tmp_path / "home.log", "serve", home) as server:
            wait_for(lambda: counted(home) > 0, 600)
            wait_for(lambda: reports(1), 600, "the first epoch with θ")
            done("backup", home, tmp_path / "home.tar")
            done("campaign", "extend", home, "power", "--by", "108s")
            wait_for(lambda: reports(2), 600, "the epoch with the later end")
            server.kill()
        done("restore", tmp_path / "home.tar", new)
        before = counted(new)
        with started(log, "serve", new):
            wait_for(of_page, 600, "the page")
            wait_for(lambda: strays() == 6, 600, "refused devices")
            sentence = CampaignState("running", strays=6).straying().partition(",")[0]
            found = undertone("doctor", new)
            assert (found.returncode, sentence in found.stdout.replace("\n", " ")) == (1, True), found.stdout
            assert sentence in of_page()
            wait_for(lambda: sentence in log.read_text(encoding="utf-8"), what="the alarm in the log")
            wait_for(lambda: strays() == 0, 600, "devices of an epoch of this server")
            wait_for(lambda: counted(new) >= before + 6 * 12, 600, "reports of twelve slots")
            fleet.send_signal(signal.SIGTERM)
            assert fleet.wait(60) == 0, said.read_text(encoding="utf-8")
    with open_store(new / "stores/power.sqlite", read_only=True) as store:
        assert {device for device, *_, outcome in store.audit() if outcome == "counted"} == {
            f"power-00{n}" for n in range(1, 7)
        }
        assert store.outcomes()["other_campaign"] > 0, "they were refused until then"
