"""What a board installs: by mip, from a server that gives only exact paths, and from the compiled files."""

import ast
import functools
import http.server
import json
import subprocess
import sys
import threading

import pytest

import undertone
from support import micropython as mp
from undertone_device.tools.compile import manifest as written_manifest

REPO = mp.REPO
NOT_ON_BOARDS = {
    "shared": set[str](),
    "device": {
        "__main__.py",
        # MicroPython also treats a folder without this file as a package. So a board saves the memory of four modules.
        "board/__init__.py",
        "core/__init__.py",
        "mqtt/__init__.py",
        "setup/__init__.py",
        "core/pauses.py",
        "core/protocols.py",
        "mqtt/protocols.py",
        "core/spent.py",
        "setup/cpython_clock.py",
        "setup/durable_folder.py",
    },
}
# package.json lists nothing of these folders. Boards get sensors from a list of their own, and the rest never.
ROOMS_ELSEWHERE = ("host/", "off_board/", "sensors/", "tools/")
PROBE = """
from undertone_device.core import reporter
from undertone_device.mqtt import client, socket_connection, session_transport
from undertone_device.setup import assembly, config, storage
from undertone_shared import report
import undertone_device.mqtt.client
print(undertone_device.mqtt.client.__file__)
"""


class Strict(http.server.SimpleHTTPRequestHandler):
    """Serves the repository as GitHub would: without parent folders and listings."""

    asked: list[str]

    def do_GET(self):
        self.asked.append(self.path)
        if ".." in self.path or self.path.endswith("/"):
            self.send_error(400)
        else:
            super().do_GET()

    def log_message(self, *_):
        pass


@pytest.fixture
def site():
    asked: list[str] = []
    handler = type("Handler", (Strict,), {"asked": asked})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(handler, directory=str(REPO))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", asked
        server.shutdown()
        thread.join()


def package(name="package.json"):
    return json.loads((REPO / name).read_text(encoding="utf-8"))


def test_the_package_names_every_module_of_a_board_and_no_other():
    listed = dict(package()["urls"])
    expected = {}
    for source in mp.SOURCES:
        for path in source.glob("undertone_*/**/*.py"):
            folder, name = path.relative_to(source).as_posix().split("/", 1)
            if name not in NOT_ON_BOARDS[source.name] and not name.startswith(ROOMS_ELSEWHERE):
                expected[f"{folder}/{name}"] = f"{source.name}/{folder}/{name}"
    # After adding a module, run: undertone device compile --manifest device/manifest.py
    assert listed == expected, 'add the module to "urls" of package.json'
    assert package()["version"] == undertone.__version__


def imported_on_a_board(source):
    """The project's modules that a source imports when it runs.

    Imports for type checkers, and those that may fail, do not count.
    """
    tree = ast.parse(source)
    skipped = {
        inner
        for node in ast.walk(tree)
        if (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
        or (isinstance(node, ast.Try) and "ImportError" in "".join(map(ast.unparse, node.handlers)))
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node not in skipped and node.module.startswith("undertone_"):
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names if alias.name.islower())


def test_a_board_carries_every_module_that_its_modules_import():
    """Modules that are loaded on demand count, too: a board that lacks one would notice it only in use."""
    urls = package()["urls"]
    there = {name.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for name, _ in urls}
    for _, path in urls:
        for name in imported_on_a_board((REPO / path).read_text(encoding="utf-8")):
            file = name.replace(".", "/")
            is_module = any((source / f"{file}.py").exists() for source in mp.SOURCES)
            assert name in there or not is_module, f"{path} imports {name}"


def test_meters_protocols_are_a_package_of_their_own():
    folder = REPO / "device/undertone_device/sensors"
    listed = dict(package("sensors.json")["urls"])
    assert listed == {
        f"undertone_device/sensors/{p.name}": f"device/undertone_device/sensors/{p.name}" for p in folder.glob("*.py")
    }
    assert package("sensors.json")["version"] == package()["version"]


def test_the_manifest_freezes_exactly_what_mip_installs():
    frozen = []

    def freeze(name, files, base_path, opt):
        assert opt == 3
        for file in files:
            assert (REPO / "device" / base_path / name / file).is_file()
            frozen.append(f"{name}/{file}")

    manifest = (REPO / "device/manifest.py").read_text(encoding="utf-8")
    exec(compile(manifest, "manifest.py", "exec"), {"package": freeze})
    assert sorted(frozen) == sorted(dict(package()["urls"]))
    # The manifest is the one that the command writes.
    assert written_manifest() == manifest


def test_the_larger_manifest_freezes_main_py_as_well():
    frozen = []
    names = {"include": frozen.append, "module": lambda name, opt: frozen.append(name)}
    exec(compile((REPO / "device/manifest_main.py").read_text("utf-8"), "manifest_main.py", "exec"), names)
    assert frozen == ["manifest.py", "main.py"]
    assert all((REPO / "device" / name).is_file() for name in frozen)


@pytest.mark.slow
def test_the_measurement_runs_on_a_small_heap(micropython, compiled, tmp_path):
    script = mp.compile_mpy(REPO / "device/measure.py", tmp_path / "program", optimise=3)[0]
    code = "import sys; sys.path.append(sys.argv[1]); import measure; measure.main()"
    result = micropython(code, str(script.parent), paths=[compiled], heap="80wk", cwd=tmp_path)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "os.urandom(32)" in result.stdout


def test_mip_installs_the_package_which_can_be_imported(site, micropython, tmp_path):
    url, asked = site
    target = tmp_path / "lib"
    program = mp.interpreter()
    done = subprocess.run(
        [program, "-m", "mip", "install", "--target", str(target), f"{url}/package.json"],
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        env={"MICROPYPATH": ".frozen", "HOME": str(tmp_path)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(asked) == 1 + len(package()["urls"])
    result = micropython(PROBE, paths=[target])
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip().startswith(str(target))


def test_compiled_files_import_without_any_source(micropython, tmp_path):
    out = tmp_path / "lib"
    done = subprocess.run(
        [sys.executable, "-m", "undertone_device", "compile", str(out)],
        capture_output=True,
        encoding="utf-8",
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert f"{len(package()['urls'])} modules" in done.stdout
    result = micropython(PROBE, paths=[out])
    assert result.stdout.strip().endswith("client.mpy"), result.stderr


@pytest.mark.parametrize("interpreter", ["cpython", "micropython"])
def test_the_core_alone_in_a_loop_of_its_own(interpreter, request):
    script = REPO / "device/examples/own_loop.py"
    if interpreter == "cpython":
        result = subprocess.run([sys.executable, str(script)], capture_output=True, encoding="utf-8", timeout=60)
    else:
        result = request.getfixturevalue("micropython")(script, paths=[])
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    # The device entered the first slot in its middle, and the last slot has not ended.
    assert len(lines) == 60
    assert lines[0].startswith("undertone/v2/load/")
    assert lines[-1].startswith("reports in the outbox: 0;")


def test_measure_prints_a_table(micropython, tmp_path):
    result = micropython(REPO / "device/measure.py", cwd=tmp_path, paths=[])
    assert result.returncode == 0, result.stderr
    rows = [line.strip("| ").split(" | ") for line in result.stdout.splitlines()[2:]]
    figures = {what: int(value.split()[0]) for what, value in rows}
    assert figures["heap that 200 slots leave behind"] < 512
    assert figures["a running device: campaign, ledger, outbox of 96 reports"] < 20000
    assert list(tmp_path.iterdir()) == []
