"""Two servers and a worker share one PostgreSQL and two brokers, as "Several machines" in docs/scale.md describes.

A fleet sends reports to them.

The brokers have the files that `undertone init` writes.
"""

import contextlib
import re
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.ci import unavailable
from support.command import undertone
from support.postgres import MISSING, Postgres, folder_of_binaries
from support.started import started
from support.waiting import wait_for
from undertone_aggregator.campaign.state import read_state
from undertone_aggregator.store.store import open_store

DEVICES = 20


@pytest.fixture
def database(free_port: Callable[[], int]) -> Iterator[str]:
    if folder_of_binaries() is None:
        unavailable(MISSING)
    server = Postgres(free_port(), durable=False)
    yield server.new_database()
    server.close()


def done(*words: object) -> str:
    finished = undertone(*words)
    assert finished.returncode == 0, (words, finished.stdout, finished.stderr)
    return finished.stdout


@contextlib.contextmanager
def broker(binary: str, files: Path, folder: Path, address: str) -> Iterator[None]:
    """A broker with the files of `undertone init` that listens at this address of loopback."""
    if folder != files:
        shutil.copytree(files, folder)
    config = folder / "mosquitto.conf"
    text = config.read_text(encoding="utf-8").replace(str(files), str(folder))
    config.write_text(re.sub(r"^(listener \d+).*$", rf"\1 {address}", text, flags=re.MULTILINE), encoding="utf-8")
    with subprocess.Popen([binary, "-c", str(config)], stderr=subprocess.DEVNULL) as child:
        try:
            yield
        finally:
            child.terminate()


@pytest.mark.slow
@pytest.mark.services
def test_a_second_server_waits_and_goes_on_when_the_first_one_is_killed(
    tmp_path: Path, database: str, mosquitto_binary: str, free_port: Callable[[], int]
) -> None:
    home, other, out = tmp_path / "home", tmp_path / "other", tmp_path / "fleet"
    health, others = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    done("init", home, "--broker", f"mqtt://127.0.0.1:{free_port()}", "--health", health, "--audit")
    settings = (home / "server.toml").read_text(encoding="utf-8")
    for before, after in (
        ('\npath = "stores"', f'\npath = "{database}"'),
        ("\nhosts = []", '\nhosts = ["127.0.0.1", "127.0.0.2"]'),
        ('\nhost = "127.0.0.1"', ""),
    ):
        assert settings.count(before) == 1, before
        settings = settings.replace(before, after)
    (home / "server.toml").write_text(settings, encoding="utf-8")
    done("campaign", "create", home, "load", "--sensor", "load", "--unit", "Wh", "--bound", 10000, "--epsilon", 1,
         "--slot-seconds", 2, "--set", "cycle=4", "--rounds", "4", "--set", "report_slots=5000")  # fmt: skip
    done("devices", "add", DEVICES, "--home", home)
    shutil.copytree(home, other)
    # Here, both servers run on one machine, so the second one needs other ports.
    (other / "server.toml").write_text(settings.replace(health, others), encoding="utf-8")
    words = ("--store", database, "--password-file", home / "aggregator.password", "--shards", "auto")
    fleet_words = ("fleet", "--fleet", home / "fleets/load", "--clients", DEVICES, "--slots", 5000, "--output", out)

    def newest() -> int:
        with open_store(database, read_only=True) as store:
            return store.newest_slot() or 0

    def ready(folder: Path) -> bool:
        served = read_state(folder / "state.json")
        return served is not None and "load" in served.campaigns and served.campaigns["load"].ready

    def log(name: str) -> str:
        return (tmp_path / name).read_text(encoding="utf-8")

    with contextlib.ExitStack() as opened:
        opened.enter_context(broker(mosquitto_binary, home / "broker", tmp_path / "b", "127.0.0.2"))
        opened.enter_context(broker(mosquitto_binary, home / "broker", home / "broker", "127.0.0.1"))
        first = opened.enter_context(started(tmp_path / "first.log", "serve", home))
        wait_for(lambda: ready(home), 600, "the first server")
        assert "coordinates the campaign" in log("first.log")
        opened.enter_context(started(tmp_path / "second.log", "serve", other))
        opened.enter_context(started(tmp_path / "worker.log", "worker", *words))
        wait_for(lambda: ready(other), 600, "the second server")
        fleet = opened.enter_context(started(tmp_path / "fleet.log", *fleet_words))
        wait_for(lambda: newest() > 0, 600, "a report")
        begun = newest()
        wait_for(lambda: newest() > begun + 10, 600, "ten slots")
        for name in ("first.log", "second.log"):
            assert "connected again" not in log(name), "no server ends the other's connection"
        first.kill()
        wait_for(lambda: "coordinates the campaign" in log("second.log"), 600, "another coordinator")
        begun = newest()
        wait_for(lambda: newest() > begun + 10, 600, "ten slots of the second server")
        fleet.send_signal(signal.SIGTERM)
        assert fleet.wait(120) == 0, log("fleet.log")
        wait_for(
            lambda: undertone("verify", "--ledger", out / "fleet.ledger", "--store", database).returncode == 0, 600
        )
    with open_store(database, read_only=True) as store:
        assert len({device for device, _, outcome in store.audit() if outcome == "counted"}) == DEVICES
