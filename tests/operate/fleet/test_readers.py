"""`undertone readers` adds, lists, rotates and removes readers in a server's folder."""

from pathlib import Path

import pytest

from support.command import undertone
from undertone_aggregator.mqtt import credentials
from undertone_aggregator.mqtt.endpoint.gate import Gate
from undertone_aggregator.server.folder import Home
from undertone_operate.fleet.readers import ReaderFiles
from undertone_shared.errors import Invalid


def run(*arguments: str, code: int = 0) -> str:
    done = undertone(*arguments)
    assert done.returncode == code, done.stderr
    return done.stdout + done.stderr


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "home"
    run("init", str(made))
    return made


def test_readers_come_change_and_go(folder: Path) -> None:
    at = ("--home", str(folder))
    assert run("readers", "list", *at) == "none\n"
    run("readers", "add", "grafana", *at)
    run("readers", "add", "home", *at)
    assert run("readers", "list", *at, "--json") == '["grafana", "home"]\n'
    path = folder / "readers/grafana.password"
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    gate = Gate(folder / "broker/passwords", credentials.servers_names(), folder / "broker/access")
    first = path.read_text(encoding="utf-8").strip()
    assert gate.admits("grafana", first)
    rules = gate.reader("grafana")
    assert rules is not None
    assert rules.may_read("undertone/v2/power/aggregate/all/filtered")
    assert rules.may_read("homeassistant/device/undertone_power/config")
    assert not rules.may_read("undertone/v2/power/5/power-001/report")
    run("readers", "rotate", "grafana", *at)
    assert gate.reload() == {"grafana"}
    assert not gate.admits("grafana", first)
    assert gate.admits("grafana", path.read_text(encoding="utf-8").strip())
    run("readers", "remove", "grafana", *at)
    assert gate.reload() == {"grafana"}
    assert not path.exists()
    assert run("readers", "list", *at) == "home\n"


def test_a_reader_and_a_device_never_share_a_name(folder: Path) -> None:
    at = ("--home", str(folder))
    run("campaign", "create", str(folder), "power", "--sensor", "power", "--unit", "W", "--bound", "100",
        "--epsilon", "1", "--slot-seconds", "60")  # fmt: skip
    run("readers", "add", "power-002", *at)
    before = (folder / "readers/power-002.password").read_text(encoding="utf-8").strip()
    assert "power-001 to power-003" in run("devices", "add", "2", *at)
    assert not (folder / "fleets/power/devices/power-002").exists()
    gate = Gate(folder / "broker/passwords", credentials.servers_names(), folder / "broker/access")
    assert gate.admits("power-002", before)
    for name in ("power-003", "power-002", "aggregator-1"):
        assert name in run("readers", "add", name, *at, code=2)
    assert "expected one of: power-002" in run("readers", "remove", "power-001", *at, code=2)
    assert "1 to 32 characters" in run("readers", "add", "A", *at, code=2)


def test_an_endpoint_without_access_rules_has_no_readers(folder: Path) -> None:
    server = folder / "server.toml"
    server.write_text(server.read_text(encoding="utf-8").replace('access = "broker/access"', ""), encoding="utf-8")
    with pytest.raises(Invalid, match="access is missing in \\[broker\\]"):
        ReaderFiles.at_home(Home(folder)).add("grafana")


def test_which_server_must_be_said(tmp_path: Path) -> None:
    assert "--home" in run("readers", "list", code=2)
    assert f"{tmp_path} holds no server.toml" in run("readers", "list", "--home", str(tmp_path), code=2)
