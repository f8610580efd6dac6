"""The files for a deployment (alerts, dashboard, image, compose file, systemd's unit), and a server below systemd."""

import contextlib
import json
import os
import pwd
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from support.ci import unavailable
from support.many import PLAN
from support.micropython import REPO
from undertone_aggregator.base import systemd
from undertone_aggregator.mqtt.signing import read_key
from undertone_aggregator.server.folder import Home
from undertone_aggregator.server.metrics import COUNTER, FAMILIES
from undertone_aggregator.settings.report_sources import EXTERNAL
from undertone_operate.fleet import initialise
from undertone_operate.fleet.initialise import Wishes

DEPLOY = REPO / "aggregator" / "deploy"
KNOWN = {f"{name}_total" if kind == COUNTER else name for name, (kind, _, _) in FAMILIES.items()}


def named(text: str) -> set[str]:
    return set(re.findall(r"\bundertone_[a-z_]+", text))


@pytest.mark.parametrize("file", ["alerts.yml", "alerts.test.yml", "dashboard.json"])
def test_every_metric_that_is_named_exists(file: str) -> None:
    text = (DEPLOY / file).read_text(encoding="utf-8")
    if file.endswith(".json"):
        text = " ".join(target["expr"] for panel in json.loads(text)["panels"] for target in panel["targets"])
    assert named(text)
    assert named(text) <= KNOWN


def test_each_alert_is_tested_to_ring_and_to_stop() -> None:
    rules = yaml.safe_load((DEPLOY / "alerts.yml").read_text(encoding="utf-8"))["groups"][0]["rules"]
    stopped = set()
    for test in yaml.safe_load((DEPLOY / "alerts.test.yml").read_text(encoding="utf-8"))["tests"]:
        rung: dict[str, int] = {}
        for moment in test["alert_rule_test"]:
            name, minute = moment["alertname"], int(moment["eval_time"].removesuffix("m"))
            if moment["exp_alerts"]:
                rung[name] = minute
            elif minute > rung.get(name, minute):
                stopped.add(name)
    assert stopped == {rule["alert"] for rule in rules}


def test_grafana_is_provisioned_with_the_dashboard_and_its_band() -> None:
    source = yaml.safe_load((DEPLOY / "grafana/datasource.yml").read_text(encoding="utf-8"))["datasources"]
    provider = yaml.safe_load((DEPLOY / "grafana/dashboards.yml").read_text(encoding="utf-8"))["providers"]
    assert [each["type"] for each in source + provider] == ["prometheus", "file"]
    mean = json.loads((DEPLOY / "dashboard.json").read_text(encoding="utf-8"))["panels"][0]
    legends = [target["legendFormat"] for target in mean["targets"]]
    filled = {
        override["matcher"]["options"]: each["value"]
        for override in mean["fieldConfig"]["overrides"]
        for each in override["properties"]
        if each["id"] == "custom.fillBelowTo"
    }
    # Grafana fills the band between the two ends of the interval. It finds the ends by their legends.
    assert filled == {legends[2]: legends[1]}


@pytest.mark.services
@pytest.mark.parametrize("what", [["check", "rules", "alerts.yml"], ["test", "rules", "alerts.test.yml"]])
def test_promtool_agrees(what: list[str]) -> None:
    if shutil.which("promtool") is None:
        unavailable("needs promtool: apt install prometheus")
    checked = subprocess.run(["promtool", *what], cwd=DEPLOY, capture_output=True, encoding="utf-8", timeout=240)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def tool(name: str) -> str:
    """The path of a linter. The package's extra `dev` installs it beside this interpreter."""
    path = Path(sys.executable).with_name(name)
    return str(path) if path.exists() else unavailable(f"needs {name}: pip install -e ./device -e '.[dev]'")


def said(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, encoding="utf-8", timeout=240, check=False)
    return done.stdout + done.stderr if done.returncode else ""


def written(folder: Path, tls: bool = False) -> Path:
    """Write what `init` writes for a server with an external broker; return the folder."""
    authority = folder / "tls/ca.crt" if tls else None
    program = (sys.executable, "-m", "undertone")
    # Use root, who exists on every machine. systemd warns of a unit that runs as nobody, and tests may run as nobody.
    user = pwd.getpwuid(0).pw_name
    initialise.initialise(folder, Wishes(EXTERNAL, "localhost", authority, user, program))
    return folder


def test_the_image_is_linted_and_of_this_version() -> None:
    """The Dockerfile is checked by a linter; no image is built from it."""
    file = DEPLOY / "Dockerfile"
    assert said(tool("hadolint"), str(file)) == ""
    from undertone import __version__

    assert f"ARG VERSION={__version__}\n" in file.read_text(encoding="utf-8")
    assert re.search(r"^USER \d+:\d+$", file.read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.slow
def test_the_compose_file_is_one(tmp_path: Path) -> None:
    """The file is checked against the schema of the specification; no container is started from it."""
    file = written(tmp_path / "home", tls=True) / "compose.yaml"
    assert said(tool("check-jsonschema"), "--builtin-schema", "vendor.compose-spec", str(file)) == ""
    service = yaml.safe_load(file.read_text(encoding="utf-8"))["services"]["mosquitto"]
    mounted, _, inside = service["volumes"][0].partition(":")
    assert mounted == inside == str(tmp_path / "home/broker"), (
        "the container sees `broker` alone, under its own path, and neither keys nor stores"
    )
    file.write_text(file.read_text(encoding="utf-8").replace("image:", "imag:"), encoding="utf-8")
    assert "imag" in said(tool("check-jsonschema"), "--builtin-schema", "vendor.compose-spec", str(file))


def test_a_folder_of_any_name_is_one_word_of_the_unit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/my clone/python")
    folder = tmp_path / os.fsdecode('my "50 %" café'.encode())
    lines = (written(folder) / "undertone.service").read_text(encoding="utf-8").splitlines()
    word = f'"{tmp_path}/my \\"50 %%\\" café"'
    assert f'ExecStart="/my clone/python" -m undertone serve {word}' in lines
    assert f"ReadWritePaths={word}" in lines
    assert f'LoadCredential=signing.key:{tmp_path}/my "50 %%" café/signing.key' in lines, (
        "systemd takes the rest of this line as the path, so it is not quoted"
    )


@pytest.mark.parametrize(
    ("state", "name"),
    [(True, "undertone"), (False, "undertone"), (False, "my 50 % café")],
    ids=["in-var-lib", "elsewhere", "of-any-name"],
)
def test_the_unit_is_clean(tmp_path: Path, state: bool, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if state:
        monkeypatch.setattr(initialise, "_STATE", tmp_path)
    # In a locale without é, Python reads the bytes of é as other characters.
    unit = written(tmp_path / os.fsdecode(name.encode())) / "undertone.service"
    text = unit.read_text(encoding="utf-8")
    assert ("DynamicUser=yes\nStateDirectory=undertone\n" in text) is state
    for line in (
        "Type=notify",
        "KillMode=mixed",
        "WatchdogSec=60",
        "LimitNOFILE=1048576",
        "LoadCredential=signing.key:",
        "LoadCredential=aggregator.password:",
    ):
        assert f"\n{line}" in text
    if shutil.which("systemd-analyze") is None:
        unavailable("needs systemd-analyze: apt install systemd")
    checked = subprocess.run(
        ["systemd-analyze", "verify", str(unit)], capture_output=True, encoding="utf-8", timeout=240
    )
    # The exit code is 0 even if lines of our unit are ignored, and other units of the machine may be named, too.
    assert [line for line in (checked.stdout + checked.stderr).splitlines() if unit.name in line] == []


@contextlib.contextmanager
def serving(home: Path, interval: float) -> Iterator[tuple[socket.socket, subprocess.Popen[bytes]]]:
    """Run ``undertone serve`` as systemd does. Yield the socket at which systemd would listen, and the process."""
    told = home.with_name("notify")
    environment = {**os.environ, "NOTIFY_SOCKET": str(told), "WATCHDOG_USEC": str(int(interval * 1e6))}
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ear:
        ear.bind(str(told))
        ear.settimeout(120)
        command = [sys.executable, "-m", "undertone", "serve", str(home), "--health", "127.0.0.1:0"]
        server = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
        try:
            yield ear, server
        finally:
            server.kill()
            server.wait()


@pytest.mark.slow
@pytest.mark.waits
def test_systemd_hears_that_it_is_ready_alive_and_stops(tmp_path: Path) -> None:
    home = written(tmp_path / "home")
    (home / "campaigns/power.toml").write_text(PLAN.format(name="power", epsilon=1), encoding="utf-8")
    with serving(home, 2.0) as (ear, server):
        heard = [ear.recv(100) for _ in range(5)]
        while b"READY=1" not in heard:
            heard.append(ear.recv(100))
        server.send_signal(signal.SIGTERM)
        last = ear.recv(100)
        while last == b"WATCHDOG=1":
            last = ear.recv(100)
        assert last == b"STOPPING=1"
        assert server.wait(120) == 0
    assert [state for state in heard if state != b"WATCHDOG=1"] == [b"READY=1"]


def test_the_watchdog_hears_four_times_in_its_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    moment, told = 100.0, []
    monkeypatch.setenv("WATCHDOG_USEC", "2000000")
    monkeypatch.setattr(systemd, "notify", told.append)
    monkeypatch.setattr(systemd.time, "monotonic", lambda: moment)
    watchdog = systemd.Watchdog()
    counts = []
    for moment in (100.0, 100.4, 100.5, 100.9, 101.5):  # noqa: B007 (the clock reads it)
        watchdog.beat()
        counts.append(len(told))
    assert counts == [1, 1, 2, 2, 3]
    assert set(told) == {"WATCHDOG=1"}


def test_a_server_without_a_campaign_is_ready_and_survives_a_hang_up(tmp_path: Path) -> None:
    with serving(written(tmp_path / "home"), 1.0) as (ear, server):
        while ear.recv(100) != b"READY=1":
            pass
        server.send_signal(signal.SIGHUP)
        # These messages come after the signal, and only if the signal has not ended the server.
        for _ in range(4):
            ear.recv(100)
        assert server.poll() is None


def test_what_systemd_loads_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = written(tmp_path / "home")
    (home / "campaigns/power.toml").write_text(PLAN.format(name="power", epsilon=1), encoding="utf-8")
    config = Home(home).config("power")
    assert config.secret("signing.key") == home / "signing.key"
    loaded = tmp_path / "credentials"
    loaded.mkdir()
    (loaded / "signing.key").write_bytes((home / "signing.key").read_bytes())
    (loaded / "signing.key").chmod(0o440)
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(loaded))
    assert config.secret("signing.key") == loaded / "signing.key"
    assert read_key(config.secret("signing.key")).public == read_key(home / "signing.key").public
    assert config.secret("aggregator.password") == home / "aggregator.password", "what was not loaded is read here"
