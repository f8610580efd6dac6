"""A campaign of a server's folder that has not begun yet."""

from pathlib import Path

import pytest

from support.many import undertone


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("home") / "home"
    given = ("--sensor", "load", "--unit", "Wh", "--bound", "10000", "--epsilon", "1")
    for words in (
        ("init", str(folder), "--tls", "--host", "localhost"),
        ("campaign", "create", str(folder), "power", *given),
        ("devices", "add", "1", "--home", str(folder), "--campaign", "power"),
    ):
        done = undertone(*words)
        assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.parametrize("verb", ["diff", "apply"])
def test_nothing_of_it_is_applied_so_nothing_changes(folder: Path, verb: str) -> None:
    done = undertone("campaign", verb, str(folder), "power", str(folder / "campaigns/power.toml"))
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        "error: campaign power has not begun: nothing of it is applied, change campaigns/power.toml itself"
    ]


def test_a_plan_that_is_no_text_is_a_sentence(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "plan.toml").write_bytes(b"bound\xff")
    done = undertone("campaign", "diff", str(folder), "power", str(tmp_path / "plan.toml"))
    assert done.returncode == 2
    assert done.stderr.splitlines() == ["error: a file that was given is not UTF-8 text: its byte 5 is 0xff"]


def test_its_backup_names_no_slot(folder: Path, tmp_path: Path) -> None:
    done = undertone("backup", str(folder / "stores/power.sqlite"), str(tmp_path / "copy.sqlite"))
    assert done.stdout == f"{tmp_path / 'copy.sqlite'}: 0 reports\n"
