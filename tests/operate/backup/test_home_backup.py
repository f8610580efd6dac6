"""A server's folder is saved in one file, and restored on an empty machine, where it serves again."""

import contextlib
import hashlib
import io
import json
import shutil
import tarfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.command import undertone
from support.many import PLAN, Running, undertone_process
from support.waiting import wait_for
from undertone_aggregator.estimate.publication import publication_of
from undertone_aggregator.server.folder import Home
from undertone_aggregator.store.store import Batch, open_store
from undertone_operate.backup import home_backup
from undertone_operate.backup.home_backup import back_up_home, restore_home
from undertone_shared.errors import Invalid


@pytest.fixture
def home(tmp_path: Path, free_port: Callable[[], int]) -> Path:
    """A server's folder with a campaign, three devices and a store."""
    folder = tmp_path / "home"
    made = undertone("init", str(folder), "--port", str(free_port()), "--health", "127.0.0.1:0")
    assert made.returncode == 0, made.stderr
    (folder / "campaigns" / "power.toml").write_text(PLAN.format(name="power", epsilon=1), encoding="utf-8")
    made = undertone("devices", "add", "3", "--home", str(folder), "--campaign", "power")
    assert made.returncode == 0, made.stderr
    return folder


@contextlib.contextmanager
def serving(home: Path) -> Iterator[None]:
    """A server with this folder that takes in reports."""
    running = Running(home)
    try:
        wait_for(lambda: bool(running.port) and running.ready("power"), 120, "the server")
        yield
    finally:
        running.end()


def fill(home: Path) -> None:
    with open_store(Home(home).config("power").store_url, campaign="power") as store:
        store.commit("0of1", Batch(outcomes=Counter(counted=7), seen=bytearray(16)))


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.waits
def test_a_backup_that_is_not_there_is_named(tmp_path: Path) -> None:
    for file, what in ((tmp_path / "backup.tar", "not there"), (tmp_path, "a folder"), ("/dev/null", "not a file")):
        refused = undertone("restore", str(file), str(tmp_path / "new"))
        assert refused.returncode == 2
        said = f"error: the backup {file} is {what}, expected a file that undertone backup has made\n"
        assert refused.stderr == said
    assert not (tmp_path / "new").exists()


@pytest.mark.slow
def test_a_folder_serves_on_another_machine(home: Path, tmp_path: Path) -> None:
    file = tmp_path / "backup.tar"
    with serving(home):
        done = undertone_process("backup", str(home), str(file), "--json")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert file.stat().st_mode & 0o777 == 0o600
    assert {"signing.key", "fleets/power"} <= {secret["name"] for secret in said["secrets"]}
    before = contents(home)
    shutil.rmtree(home)

    elsewhere = tmp_path / "new" / "server"
    done = undertone("restore", str(file), str(elsewhere))
    assert done.returncode == 0, done.stderr
    assert "power: 1 epoch, 0 reports" in done.stdout
    # The lost server may have published numbers since the backup, so this store publishes none for that time.
    assert "power: no number is published for the time from" in done.stdout
    plan = Home(elsewhere).config("power").campaign
    with open_store(Home(elsewhere).config("power").store_url, campaign="power", read_only=True) as store:
        publication = publication_of(store, plan.min_reports)
    assert publication.withheld == ((0, publication.settled),)
    assert (
        abs(publication.settled - (time.time() // plan.slot_seconds - plan.settle_slots - 1)) * plan.slot_seconds < 600
    )
    kept = contents(elsewhere)
    for name in ("signing.key", "server.toml", "campaigns/power.toml"):
        assert kept[name] == before[name]
    assert {name for name in kept if name.startswith("fleets/")} == {n for n in before if n.startswith("fleets/")}
    assert str(elsewhere).encode() in kept["undertone.service"]
    assert str(home).encode() not in kept["undertone.service"]
    with serving(elsewhere):
        pass


def test_stores_are_whole_and_nothing_is_replaced(home: Path, tmp_path: Path) -> None:
    fill(home)
    file = tmp_path / "backup.tar"
    made = back_up_home(home, file)
    assert made.files > 5
    for wrong in (file, home / "inside.tar"):
        with pytest.raises(Invalid, match=r"exists already|is inside"):
            back_up_home(home, wrong)
    fill(home)
    with pytest.raises(Invalid, match="is not empty, expected an empty or new folder"):
        restore_home(file, home)
    empty = tmp_path / "empty"
    empty.mkdir()
    restore_home(file, empty)
    with open_store(Home(empty).config("power").store_url, campaign="power", read_only=True) as store:
        assert store.outcomes()["counted"] == 7
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.startswith(".")) == []


def test_a_restore_names_the_landed_files_by_the_new_folder(home: Path, tmp_path: Path) -> None:
    plan, again = home / "campaigns/power.toml", tmp_path / "again"
    plan.write_text(f'{plan.read_text(encoding="utf-8")}\n[landing]\nfolder = "landed"\n', encoding="utf-8")
    back_up_home(home, tmp_path / "backup.tar")
    told = restore_home(tmp_path / "backup.tar", again)
    assert f"the backup does not contain the landed files in {again}/landed" in told


@pytest.mark.parametrize("wrong", ["cut", "changed", "outside", "empty"])
def test_what_is_not_whole_leaves_nothing(home: Path, tmp_path: Path, wrong: str) -> None:
    file, target = tmp_path / "backup.tar", tmp_path / "target"
    back_up_home(home, file)
    data = file.read_bytes()
    if wrong == "cut":
        file.write_bytes(data[: len(data) * 2 // 3])
    elif wrong == "changed":
        at = data.index(b"[broker]")
        file.write_bytes(data[:at] + b"[Broker]" + data[at + 8 :])
    else:
        entry = {"name": "../escaped", "size": 1, "mode": 0o600, "sha256": ""}
        files = [entry] if wrong == "outside" else []
        manifest = json.dumps({"format": "undertone-home-1", "folder": "/x", "files": files}).encode()
        with tarfile.open(file, "w:") as archive:
            for name, content in (("manifest.json", manifest), ("home/../escaped", b"x")):
                member = tarfile.TarInfo(name)
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
    with pytest.raises(Invalid):
        restore_home(file, target)
    assert not target.exists()
    assert not (tmp_path / "escaped").exists()
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.startswith(".")) == []


def test_files_outside_of_the_folder_are_named(home: Path, tmp_path: Path) -> None:
    """A backup does not contain them, wherever the settings name them."""
    elsewhere = tmp_path / "elsewhere"
    settings = (home / "server.toml").read_text(encoding="utf-8")
    for before, after in (
        ('\npath = "stores"', f'\npath = "{elsewhere}"'),
        ("[join]\n", f'[join]\ncertificate = "{elsewhere}/join.crt"\nkey = "{elsewhere}/join.key"\n'),
    ):
        assert settings.count(before) == 1, before
        settings = settings.replace(before, after)
    (home / "server.toml").write_text(settings, encoding="utf-8")
    fill(home)
    named = "\n".join(back_up_home(home, tmp_path / "backup.tar").notes)
    for name in ("power.sqlite", "join.crt", "join.key"):
        assert f"{elsewhere / name} is outside the folder" in named


def crafted(file: Path, members: list[tuple[str, int]], content: bytes = b"x") -> None:
    """Write a backup whose manifest fits its ``members``: (name, mode) of each. All have this content."""
    digest = hashlib.sha256(content).hexdigest()
    files = [{"name": name, "size": len(content), "mode": mode, "sha256": digest} for name, mode in members]
    manifest = json.dumps({"format": "undertone-home-1", "folder": "/x", "files": files}).encode()
    with tarfile.open(file, "w:") as archive:
        for name, data in (("manifest.json", manifest), *((f"home/{name}", content) for name, _ in members)):
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))


@pytest.mark.parametrize(
    "names", [["."], [""], [".."], ["./a"], ["a//b"], ["/a"], ["a/."], ["a/../b"], ["a", "a/b"], ["a/b", "a"]]
)
def test_a_crafted_backup_is_refused_in_one_sentence(tmp_path: Path, names: list[str]) -> None:
    file, target = tmp_path / "backup.tar", tmp_path / "target"
    crafted(file, [(name, 0o600) for name in names])
    with pytest.raises(Invalid, match="the backup contains"):
        restore_home(file, target)
    assert [path.name for path in tmp_path.iterdir()] == ["backup.tar"]


def test_a_crafted_backup_lets_nobody_else_write_or_read_secrets(tmp_path: Path) -> None:
    file, target = tmp_path / "backup.tar", tmp_path / "target"
    wanted = {"server.toml": 0o755, "note.txt": 0o755, "signing.key": 0o700, "broker/passwords": 0o700}
    crafted(file, [(name, 0o6777) for name in wanted], b"[server]\n")
    restore_home(file, target)
    assert {name: (target / name).stat().st_mode & 0o7777 for name in wanted} == wanted


def test_a_backup_that_fails_leaves_nothing(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(home_backup, "_write", full)
    with pytest.raises(OSError, match="No space left"):
        back_up_home(home, tmp_path / "backup.tar")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["home"]
