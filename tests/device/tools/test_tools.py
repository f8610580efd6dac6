"""The tools that a PC runs for boards and services: flashing, files over a serial line, service units, labels."""

import json
import os
import shutil
import subprocess
import sys
import tty
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path

import pytest

from support import micropython as mp
from support.board import Board
from support.ci import pseudo_terminal, unavailable
from undertone_device import __main__ as command
from undertone_device.tools import install as installing
from undertone_device.tools.compile import compile_boards
from undertone_device.tools.flash import collect, send, settings_line
from undertone_device.tools.install import NAME, install, unit
from undertone_device.tools.label import label
from undertone_device.tools.shipped import FILES, LISTS, shipped
from undertone_shared.errors import Invalid


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of a device, as `undertone devices add` writes it."""
    made = tmp_path / "meter-17"
    made.mkdir()
    device = {
        "name": "meter-17",
        "broker": {"host": "broker.example", "password_file": "password", "tls": {"ca": "ca.crt"}},
        "campaigns": ["load"],
        "policy": "policy.json",
        "state": "state",
    }
    (made / "device.json").write_text(json.dumps(device), encoding="utf-8")
    shutil.copy(mp.REPO / "device/examples/policy.json", made / "policy.json")
    (made / "password").write_text("secret\n", encoding="utf-8")
    (made / "ca.crt").write_text("certificate\n", encoding="utf-8")
    return made


@pytest.fixture
def board(tmp_path: Path) -> Iterator[Board]:
    if mp.interpreter() is None:
        unavailable(mp.MISSING)
    flash = tmp_path / "flash"
    flash.mkdir()
    running = Board(flash)
    yield running
    running.close()


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.waits
@pytest.mark.micropython
def test_a_board_gets_everything_and_runs_it(folder: Path, board: Board, tmp_path: Path, capsys) -> None:
    flash = tmp_path / "flash"
    (flash / "main.py").write_text("the program before", encoding="utf-8")
    for name in ("code", "code.new"):
        (flash / name).write_text("lib lib2 3", encoding="utf-8")
    (flash / "state").mkdir()
    (flash / "state/ledger").write_text("what was spent", encoding="utf-8")
    sensor = tmp_path / "sensor.py"
    sensor.write_text("def read():\n    return 7\n", encoding="utf-8")
    assert command.main(["flash", str(folder), "--port", board.path, "--sensor", str(sensor)]) == 0
    said = capsys.readouterr().out
    assert f"to {board.path}" in said
    expected = collect(folder, tmp_path / "again", sensor)
    assert said.splitlines()[-1] == f"{len(expected)} of {len(expected)} files"
    written = {str(path.relative_to(flash)) for path in flash.rglob("*") if path.is_file()}
    assert written == {*expected, "state/ledger"}
    for name in expected:
        assert (flash / name).read_bytes() == (tmp_path / "again" / name).read_bytes()
    assert (flash / "state/ledger").read_text(encoding="utf-8") == "what was spent"
    # The board's interpreter loads the code from there, without any source.
    result = mp.run_micropython(
        "from undertone_device.setup.config import read_config\nprint(read_config('device.json').name)",
        cwd=flash,
        paths=[flash / "lib"],
    )
    assert result.stdout.strip() == "meter-17", result.stderr


@pytest.mark.slow
@pytest.mark.waits
@pytest.mark.micropython
def test_a_board_is_flashed_over_one_connection(folder: Path, board: Board, monkeypatch) -> None:
    """Between two connections, another program could open the port."""
    started = []
    popen = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", lambda line, **options: started.append(line) or popen(line, **options))
    assert command.main(["flash", str(folder), "--port", board.path]) == 0
    (line,) = [line for line in started if "mpremote" in line]
    assert line.count("connect") == 1
    # At the end the board restarts, so that main.py runs.
    assert line[-2:] == ["+", "reset"]


def test_what_every_board_loads_fits_44_kilobytes() -> None:
    sys.path.append(str(mp.REPO / "scripts"))
    import mpy_sizes

    assert mpy_sizes.totals()["every board"] <= 44 * 1024


def test_a_compiled_module_has_no_name_that_a_board_never_looks_up(tmp_path: Path) -> None:
    source = tmp_path / "module.py"
    source.write_text(
        "TYPE_CHECKING = False\nif TYPE_CHECKING:\n    from typing import Elsewhere\nelse:\n    Base = object\n"
        "_HALF = 1 << 10\n_WHOLE = 2 * _HALF\n_WORD = 0xFFFFFFFF\n_EITHER = 1 if len('a') > 1 else 0\n"
        "SHOWN = 3\nTOLD = 8\nTICKS_MASK = 9\n\n\n"
        'def both():\n    """Return all."""\n    return _WHOLE, _WORD, SHOWN, TICKS_MASK, Base\n',
        encoding="utf-8",
    )
    other = tmp_path / "other.py"
    other.write_text(
        "import module\nfrom module import SHOWN, TICKS_MASK, both\nREAD = module.TOLD\n\n\n"
        "def all():\n    return SHOWN, TICKS_MASK, both()\n",
        encoding="utf-8",
    )
    compiled, importing = compile_boards(tmp_path, {"module.py": source, "other.py": other})
    names = compiled.read_bytes()
    for name in (b"TYPE_CHECKING\x00", b"typing", b"Elsewhere", b"_HALF", b"_WHOLE", b"_WORD", b"SHOWN"):
        assert name not in names
    # main.py imports TICKS_MASK, and another module reads TOLD as an attribute.
    for name in (b"_EITHER", b"TICKS_MASK", b"TOLD", b"Base", b"both"):
        assert name in names
    names = importing.read_bytes()
    assert b"SHOWN" not in names
    assert b"TICKS_MASK" not in names
    if mp.interpreter() is not None:
        result = mp.run_micropython("import other; print(other.all(), other.READ)", paths=[tmp_path])
        assert result.stdout == f"(3, 9, ({2 << 10}, {0xFFFFFFFF}, 3, 9, <class 'object'>)) 8\n"


def test_a_compiled_module_names_few_others_to_import_from(tmp_path: Path) -> None:
    """`top` imports from `low` and from `middle`, which has all that `top` needs.

    So its compiled file names only `middle`, and relative to its own package.
    """
    files = {}
    for name, text in {
        "package/__init__.py": "from package.low import two\n",
        "package/low.py": "def one():\n    return 1\n\n\ndef two():\n    return 2\n",
        "package/middle.py": "from package.low import one\nfrom package.low import two as second\n",
        "package/inner/__init__.py": "",
        "package/inner/top.py": "from package.low import one\nfrom package.middle import second\n\n\n"
        "def all():\n    from package import middle\n    from package.inner import leaf\n\n"
        "    return one(), second(), middle.one(), leaf.both()\n",
        "package/inner/leaf.py": "import other\nfrom package.low import one, two\n"
        "from package.middle import one as first\n\n\ndef both():\n    return one(), two(), first(), other.READ\n",
        "other.py": "from package.low import one\n\nREAD = one()\n",
    }.items():
        files[name] = tmp_path / "sources" / name
        files[name].parent.mkdir(parents=True, exist_ok=True)
        files[name].write_text(text, encoding="utf-8")
    compiled = dict(zip(files, compile_boards(tmp_path, files), strict=True))
    top = compiled["package/inner/top.py"].read_bytes()
    assert b"middle" in top
    for name in (b"low", b"package.middle"):
        assert name not in top
    # `leaf` imports `two`, which `middle` has only under another name, and renames `one`. So it names both modules.
    leaf = compiled["package/inner/leaf.py"].read_bytes()
    assert b"low" in leaf
    assert b"middle" in leaf
    assert b"package.low" in compiled["other.py"].read_bytes()
    if mp.interpreter() is not None:
        result = mp.run_micropython("import package\nfrom package.inner import top; print(top.all())", paths=[tmp_path])
        assert result.stdout == "(1, 2, 1, (1, 2, 1, 1))\n", result.stderr


@pytest.mark.slow
def test_main_comes_last_and_a_folder_that_lacks_something_is_named(folder: Path, tmp_path: Path) -> None:
    order = collect(folder, tmp_path / "out")
    assert order[-1] == "main.py"
    assert order[-5:-1] == ["device.json", "policy.json", "password", "ca.crt"]
    assert not any("sensors" in name for name in order)
    assert any("sensors/p1" in name for name in collect(folder, tmp_path / "more", meters=True))
    settings = (folder / "device.json").read_text(encoding="utf-8")
    websocket = json.loads(settings)
    websocket["broker"]["host"] = "wss://broker.example"
    (folder / "device.json").write_text(json.dumps(websocket), encoding="utf-8")
    with pytest.raises(Invalid, match="boards have no WebSocket"):
        collect(folder, tmp_path / "least")
    (folder / "device.json").write_text(settings, encoding="utf-8")
    (folder / "ca.crt").unlink()
    with pytest.raises(Invalid, match=r"has no file ca\.crt"):
        collect(folder, tmp_path / "less")
    (folder / "policy.json").unlink()
    with pytest.raises(Invalid, match=r"has no policy\.json"):
        collect(folder, tmp_path / "least")
    (folder / "policy.json").write_text("{}", encoding="utf-8")
    for text in (b"{", b"[]", b"\xff\xff", b'{"name": "m", "broker": []}'):
        (folder / "device.json").write_bytes(text)
        with pytest.raises(Invalid, match=r"configuration|broker"):
            collect(folder, tmp_path / "damaged")
    settings = {"name": "m", "broker": {"host": "h", "password_file": "password"}, "campaigns": ["c"], "state": "s"}
    (folder / "device.json").write_text(json.dumps(settings | {"policy": "policy.json"}), encoding="utf-8")
    (folder / "password").write_bytes(b"\xff\xfe")
    with pytest.raises(Invalid, match="password is no text"):
        settings_line(folder)


@pytest.mark.slow
def test_a_port_that_is_none_is_one_sentence(folder: Path, capsys) -> None:
    assert command.main(["flash", str(folder), "--port", "/dev/absent"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: the board at /dev/absent")
    assert said.count("\n") == 1


def test_the_service_names_this_interpreter_and_this_configuration(folder: Path, tmp_path: Path) -> None:
    start = f"ExecStart=/opt/python -m undertone_device run --config {folder / 'device.json'}"
    assert start in unit(folder / "device.json", "/opt/python").splitlines()
    text = unit(folder / "device.json")
    assert sys.executable in text
    odd = unit(tmp_path / 'a "b" 100%' / "device.json", "/usr/bin/python3")
    assert '\\"b\\" 100%%/device.json"' in odd
    units = tmp_path / "units"
    units.mkdir()
    shown = []
    assert install(folder / "device.json", lambda *asked: bool(shown.append(asked)), units) == []
    assert shown == [(units / NAME, text)]
    assert not (units / NAME).exists()

    def agreed(path: Path, text: str) -> bool:
        return True

    commands = install(folder / "device.json", agreed, units)
    assert commands[-1] == "systemctl enable --now undertone-device"
    assert (units / NAME).read_text(encoding="utf-8") == text
    install(folder / "device.json", agreed, units)
    (units / NAME).write_text("mine", encoding="utf-8")
    with pytest.raises(Invalid, match=r"undertone-device\.service exists"):
        install(folder / "device.json", agreed, units)
    with pytest.raises(Invalid, match="cannot be written"):
        install(folder / "device.json", agreed, tmp_path / "absent")


def test_a_service_is_not_written_without_a_yes(folder: Path, tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.setattr(installing, "UNITS", tmp_path)
    monkeypatch.setattr(installing.install, "__defaults__", (tmp_path,))
    monkeypatch.setattr("builtins.input", lambda question: "")
    words = ["install", "--systemd", "--config", str(folder / "device.json")]
    assert command.main(words) == 0
    assert "nothing was written" in capsys.readouterr().out
    assert not (tmp_path / NAME).exists()
    assert command.main([*words, "--yes"]) == 0
    assert (tmp_path / NAME).exists()


def test_a_label_shows_the_name_and_no_secret(folder: Path) -> None:
    text = label(folder)
    words = [element.text for element in ElementTree.fromstring(text).iter() if element.tag.endswith("text")]
    assert words == ["meter-17", "campaign load", "any 24 h: ε 49, life: ε no limit", "Undertone"]
    assert "secret" not in text


@pytest.mark.parametrize("name", [*FILES, *LISTS])
def test_every_file_that_the_docs_install_is_there(name: str) -> None:
    assert shipped(name).read_bytes()


def test_systemd_accepts_the_service(folder: Path, tmp_path: Path) -> None:
    verify = shutil.which("systemd-analyze")
    if verify is None:
        unavailable("needs systemd-analyze: apt install systemd")
    path = tmp_path / NAME
    path.write_text(unit(folder / "device.json").replace("User=undertone", "User=root"), encoding="utf-8")
    done = subprocess.run([verify, "verify", str(path)], capture_output=True, encoding="utf-8", check=False)
    assert NAME not in done.stderr, done.stderr


@pytest.mark.slow
@pytest.mark.micropython
def test_a_board_that_waits_gets_its_files_over_the_serial_line(folder: Path, compiled: Path, tmp_path: Path) -> None:
    """The real interpreter on a pseudo-terminal has main.py and the compiled code, and no other file."""
    interpreter = mp.interpreter()
    if interpreter is None:
        unavailable(mp.MISSING)
    near, far = pseudo_terminal()
    # The board reads exactly the bytes that were sent.
    tty.setraw(near)
    tty.setraw(far)
    board = tmp_path / "board"
    board.mkdir()
    sensor = tmp_path / "mine.py"
    sensor.write_text("def read():\n    return 7\n", encoding="utf-8")
    shutil.copy(mp.REPO / "device/main.py", board)
    stand_ins = tmp_path / "stand_ins"
    stand_ins.mkdir()
    for name in ("machine.py", "network.py", "ntptime.py", "port_names.py"):
        shutil.copy(mp.REPO / "tests/device/board/stand_in" / name, stand_ins)
    # main.py and the compiled code alone are there, as after flashing. The board starts again once it has its files.
    code = "import main; main.main()"
    there = {"MICROPYPATH": f".frozen:{board}:{stand_ins}:{compiled}"}
    running = subprocess.Popen([interpreter, "-c", code], cwd=board, stdin=near, stdout=near, stderr=near, env=there)
    try:
        send(folder, os.ttyname(far), sensor, lambda said: None)
        assert running.wait(60) == 0
        assert (board / "sensor.py").read_text(encoding="utf-8") == sensor.read_text(encoding="utf-8")
    finally:
        running.kill()
        running.wait()
        os.close(near)
        os.close(far)
