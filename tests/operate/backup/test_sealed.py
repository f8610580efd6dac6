"""Backups with a passphrase: only somebody who knows it can restore one, and no changed or cut backup is restored."""

import io
import json
from pathlib import Path

import pytest

from support.command import undertone
from undertone_operate.backup import sealed
from undertone_operate.backup.home_backup import restore_sealed_home
from undertone_operate.backup.sealed import is_sealed, seal, unseal
from undertone_shared.errors import Invalid

PHRASE = "correct horse battery"


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sealed, "_PART", 64)
    monkeypatch.setattr(sealed, "_COST", 2)


def shut(content: bytes) -> bytes:
    out = io.BytesIO()
    seal(io.BytesIO(content), out, PHRASE)
    return out.getvalue()


def opened(data: bytes, phrase: str = PHRASE) -> bytes:
    out = io.BytesIO()
    unseal(io.BytesIO(data), out, phrase)
    return out.getvalue()


@pytest.mark.parametrize("size", [0, 1, 63, 64, 65, 128, 1000])
def test_what_was_sealed_comes_back(size: int) -> None:
    content = bytes(range(256)) * 4
    data = shut(content[:size])
    assert opened(data) == content[:size]
    assert content[:16] not in data or size < 16
    assert shut(content[:size]) != data, "no two files have one key"


def test_every_change_is_noticed() -> None:
    data = shut(b"a" * 200)
    head, part = 5 + 16 + 7, 64 + 16
    changed = [data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :] for at in range(len(data))]
    cut = [data[:end] for end in (0, 4, head - 1, head, head + part, head + 2 * part, len(data) - 1)]
    swapped = data[:head] + data[head + part : head + 2 * part] + data[head : head + part] + data[head + 2 * part :]
    for wrong in [*changed, *cut, swapped, data + b"\0"]:
        with pytest.raises(Invalid):
            opened(wrong)
    with pytest.raises(Invalid, match="passphrase"):
        opened(data, PHRASE + " ")


def test_a_home_comes_back_by_its_passphrase_alone(tmp_path: Path) -> None:
    def run(*words: object, code: int = 0) -> str:
        done = undertone(*map(str, words))
        assert done.returncode == code, done.stderr
        return done.stderr if code else done.stdout

    home, file, again = tmp_path / "home", tmp_path / "backup", tmp_path / "again"
    run("init", home)
    (home / "groups.csv").write_text("device,group\n", encoding="utf-8")
    create = ("--sensor", "load", "--unit", "Wh", "--bound", "1000", "--epsilon", "1", "--set", "groups=groups.csv")
    run("campaign", "create", home, "power", *create)
    run("devices", "add", 2, "--home", home, "--group", "north")
    run("readers", "add", "ada", "--home", home)
    phrase = tmp_path / "phrase"
    phrase.write_text(PHRASE + "\n", encoding="utf-8")
    phrase.chmod(0o644)
    assert "0600" in run("backup", home, file, "--passphrase-file", phrase, code=2)
    phrase.chmod(0o600)
    secrets = json.loads(run("backup", home, file, "--passphrase-file", phrase, "--json"))["secrets"]
    assert "signing.key" in {secret["name"] for secret in secrets}
    assert is_sealed(file)
    assert file.stat().st_mode & 0o777 == 0o600
    assert b"signing.key" not in file.read_bytes()
    assert "--passphrase-file" in run("restore", file, again, code=2)
    other = tmp_path / "other"
    other.write_text("another passphrase", encoding="utf-8")
    other.chmod(0o600)
    assert "passphrase" in run("restore", file, again, "--passphrase-file", other, code=2)
    assert not again.exists()
    run("restore", file, again, "--passphrase-file", phrase)
    for name in (
        "groups.csv",
        "signing.key",
        "broker/passwords",
        "broker/access",
        "fleets/power/devices/power-002/password",
    ):
        assert (again / name).read_bytes() == (home / name).read_bytes(), name
    assert "ada:" in (again / "broker/passwords").read_text(encoding="utf-8")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["again", "backup", "home", "other", "phrase"]
    plain = tmp_path / "plain"
    run("backup", home, plain)
    cut = tmp_path / "cut"
    cut.write_bytes(file.read_bytes()[:20])
    assert "truncated" in run("restore", cut, tmp_path / "third", "--passphrase-file", phrase, code=2)
    assert "not encrypted" in run("restore", plain, tmp_path / "third", "--passphrase-file", phrase, code=2)


def test_an_error_names_the_encrypted_file_and_no_temporary_one(tmp_path: Path) -> None:
    file = tmp_path / "other.backup"
    file.write_bytes(shut(b"no archive at all"))
    with pytest.raises(Invalid, match=f"^{file} is not a complete backup"):
        restore_sealed_home(file, tmp_path / "home", PHRASE)
    assert sorted(tmp_path.iterdir()) == [file]
