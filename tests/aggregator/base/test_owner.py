"""What a command makes as root belongs to the server's user, for instance to the dynamic user that systemd makes."""

import os
import tempfile
from pathlib import Path

import pytest

from support.ci import ABSENT
from support.many import PLAN
from undertone_aggregator.base.owner import user_name
from undertone_aggregator.mqtt import credentials
from undertone_aggregator.server.folder import Home
from undertone_aggregator.store.store import open_store

NOBODY = 65534


def gives_files_away() -> bool:
    """Whether this process may make another user the owner of a file. Root in a user namespace may not."""
    with tempfile.NamedTemporaryFile() as file:
        try:
            os.chown(file.name, NOBODY, NOBODY)
        except OSError:
            return False
    return True


pytestmark = pytest.mark.skipif(not gives_files_away(), reason=ABSENT + "the right to make files that others own")


def owners(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_uid for path in folder.rglob("*") if path.is_file()}


def test_a_servers_folder_stays_its_users(tmp_path: Path) -> None:
    folder = tmp_path / "home"
    (folder / "broker").mkdir(parents=True)
    for name in ("server.toml", "broker/passwords"):
        (folder / name).write_text("", encoding="utf-8")
    for path in (folder, *folder.rglob("*")):
        os.chown(path, NOBODY, NOBODY)
    home = Home(folder)
    home.write_plan("power", PLAN.format(name="power", epsilon=1))
    with credentials.alone(home.folder / "broker"):
        credentials.change_passwords(home.folder / "broker" / "passwords", {"power-001": "secret"})
    with open_store(home.config("power").store_url, campaign="power") as store, store.serving(1), store.shared(1):
        store.set_meta({"campaign": "power"})
        made = owners(home.folder)
    assert {"power.toml", "passwords", ".lock", "power.sqlite", "power.sqlite.lock", "power.sqlite-wal"} <= set(made)
    assert set(made.values()) == {NOBODY}
    assert {path.stat().st_uid for path in home.folder.rglob("*") if path.is_dir()} == {NOBODY}


def test_a_file_that_is_replaced_keeps_its_owner(tmp_path: Path) -> None:
    path = tmp_path / "passwords"
    path.write_text("", encoding="utf-8")
    os.chown(path, NOBODY, NOBODY)
    credentials.change_passwords(path, {"d": "secret"})
    assert path.stat().st_uid == NOBODY
    assert tmp_path.stat().st_uid == 0


def test_a_user_without_a_name_goes_by_the_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a container, the process has a user's number, and no variable names the user."""
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 2_000_000_011)
    assert user_name() == "2000000011"
    monkeypatch.setenv("USER", "ada")
    assert user_name() == "ada"
