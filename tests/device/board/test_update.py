"""New code for a board, under the real MicroPython: it is checked, tried, and kept or dropped.

An update may be cut off at every step.
"""

import functools
import http.server
import itertools
import json
import shutil
import threading
import zipfile

import pytest

from support import micropython as mp
from support.ci import unavailable
from undertone_device.tools.release import release

pytestmark = pytest.mark.micropython

# This program makes N changes of its files, and ends at the next one, as if the power failed.
CUT = """
import builtins, os, sys
left = int(sys.argv[3])
class Cut(BaseException):
    pass
def counted(call):
    def wrapped(*arguments):
        global left
        left -= 1
        if left < 0:
            raise Cut
        return call(*arguments)
    return wrapped
class Os:
    def __getattr__(self, name):
        value = getattr(os, name)
        return counted(value) if name in ("remove", "rmdir", "mkdir", "rename") else value
import mip
from undertone_device.board import update
from undertone_device.setup import storage
storage.os = update.os = mip.os = Os()
real = builtins.open
def opened(path, mode="r", *rest):
    return counted(real)(path, mode) if "w" in mode else real(path, mode)
builtins.open = opened
try:
    print(update.fetch(sys.argv[1], sys.argv[2]))
except Cut:
    print("cut")
"""

# What main.py does first, before it uses the board.
BOOT = """
import sys
text = open(sys.argv[1]).read()
exec(text[text.index("import os"):text.index("import machine")])
import undertone_device
from undertone_shared import errors
print(ON_TRIAL, undertone_device.__file__.split("/")[0], sys.path[0])
"""


# The answers of a server that cannot be trusted to requests for package.json, in this order.
ANSWERS: list[bytes] = []


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """(URL of an unpacked release, sha256 of its package.json, its folder)."""
    if mp.interpreter() is None:
        unavailable(mp.MISSING)
    folder = tmp_path_factory.mktemp("site")
    digest = release(folder / "release.zip")
    zipfile.ZipFile(folder / "release.zip").extractall(folder)
    (root,) = (path for path in folder.iterdir() if path.is_dir())

    class Server(http.server.SimpleHTTPRequestHandler):
        def do_GET(self):
            if self.path.endswith("package.json") and ANSWERS:
                (root / "package.json").write_bytes(ANSWERS.pop(0))
            super().do_GET()

        def log_message(self, *_):
            pass

    handler = functools.partial(Server, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/{root.name}", digest, root
        server.shutdown()
        thread.join()


@pytest.fixture
def flash(tmp_path, compiled):
    """The files of a board, with the code that was flashed first."""
    folder = tmp_path / "flash"
    shutil.copytree(compiled, folder / "lib")
    return folder


def fetch(flash, url, digest, cut=10_000, running="lib"):
    """Run what an owner types on a board, with the compiled code in the folder ``running``."""
    code = (
        CUT
        if cut < 10_000
        else "import sys\nfrom undertone_device.board import update\nprint(update.fetch(*sys.argv[1:3]))"
    )
    return mp.run_micropython(code, url, digest, str(cut), cwd=flash, paths=[running])


def last(result):
    """The last word of the output, which follows mip's own lines."""
    return result.stdout.split()[-1]


def boot(flash):
    result = mp.run_micropython(BOOT, str(mp.REPO / "device/main.py"), cwd=flash, paths=["lib"])
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout.split()


def test_new_code_is_tried_and_kept_once_it_has_reported(site, flash):
    url, digest, root = site
    assert boot(flash)[:2] == ["False", "lib"]
    assert last(fetch(flash, url, digest)) == "lib2"
    assert (flash / "code").read_text(encoding="utf-8") == "lib lib2 3"
    for name in json.loads((root / "package.json").read_text(encoding="utf-8"))["sha256"]:
        assert (flash / "lib2" / name).read_bytes() == (root / name).read_bytes()
    assert boot(flash) == ["True", "lib2", "lib2"]
    assert "on trial" in fetch(flash, url, digest).stdout
    kept = mp.run_micropython("from undertone_device.board import update\nupdate.keep()", cwd=flash, paths=["lib2"])
    assert kept.returncode == 0, kept.stdout
    assert boot(flash) == ["False", "lib2", "lib2"]
    # The next update goes into the other folder.
    assert last(fetch(flash, url, digest, running="lib2")) == "lib"
    assert boot(flash) == ["True", "lib", "lib"]


def test_code_that_does_not_report_is_dropped_after_three_boots(site, flash):
    url, digest, _ = site
    fetch(flash, url, digest)
    assert [boot(flash)[1] for _ in range(5)] == ["lib2", "lib2", "lib2", "lib", "lib"]
    assert last(fetch(flash, url, digest)) == "lib2"


@pytest.mark.parametrize("code", ["lib lib2 x", "lib lib2 ", "lib lic2 3", "lic lib2 3", "\0\0", ""])
def test_a_damaged_choice_boots_the_code_that_was_flashed(flash, code):
    shutil.copytree(flash / "lib", flash / "lib2")
    (flash / "code").write_text(code, encoding="utf-8")
    assert [boot(flash)[:2] for _ in range(2)] == [["False", "lib"]] * 2


def test_damaged_code_and_another_release_are_refused(site, flash):
    url, digest, root = site
    assert "or has another sha256 than" in fetch(flash, url, "00" * 32).stdout
    module = root / "undertone_device/mqtt/client.mpy"
    good = module.read_bytes()
    try:
        module.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
        assert "undertone_device/mqtt/client.mpy is missing, or its sha256 is not" in fetch(flash, url, digest).stdout
    finally:
        module.write_bytes(good)
    assert not (flash / "code").exists()
    assert boot(flash)[:2] == ["False", "lib"]


def test_only_the_files_that_the_manifest_names_are_fetched(site, flash):
    url, digest, root = site
    manifest = root / "package.json"
    good = manifest.read_bytes()
    listed = json.loads(good)
    # After the checked answer, the server gives another one that names one more file, which would hide MicroPython's
    # own os.
    listed["urls"].append(["os.mpy", "undertone_device/mqtt/client.mpy"])
    ANSWERS[:] = good, json.dumps(listed).encode()
    try:
        assert last(fetch(flash, url, digest)) == "lib2"
    finally:
        ANSWERS.clear()
        manifest.write_bytes(good)
    written = {path.relative_to(flash / "lib2").as_posix() for path in (flash / "lib2").rglob("*") if path.is_file()}
    assert written == set(listed["sha256"])


def interrupted(flash, url, digest, cut):
    """Cut an update after ``cut`` steps and boot. Return the folder that ran, and whether the update was cut at all."""
    other = flash / "lib2"
    for name in ("code", "code.new"):
        (flash / name).unlink(missing_ok=True)
    shutil.rmtree(other, ignore_errors=True)
    shutil.copytree(flash / "lib", other)
    result = fetch(flash, url, digest, cut)
    assert result.returncode == 0, result.stdout + result.stderr
    # The file that chooses the new folder counts even under its temporary name. It is written only when all of the new
    # code is there.
    chosen = any((flash / name).exists() for name in ("code", "code.new"))
    ran = boot(flash)[1]
    assert ran == ("lib2" if chosen else "lib")
    return ran, last(result) == "cut"


@pytest.mark.slow
@pytest.mark.parametrize("stride", [5, pytest.param(1, marks=pytest.mark.exhaustive)])
def test_whatever_interrupts_an_update_a_whole_program_boots(site, flash, stride):
    """The update is cut after every fifth step and after each of the last steps, which choose the new program.

    The exhaustive test cuts it after every step.
    """
    url, digest, _ = site
    for beyond in itertools.count(0, stride):
        ran, cut = interrupted(flash, url, digest, beyond)
        if not cut:
            break
        assert ran == "lib" or interrupted(flash, url, digest, beyond + 1) == ("lib2", False)
    steps = [interrupted(flash, url, digest, step) for step in range(beyond - stride, beyond + 1)]
    whole = steps.index(("lib2", False))
    # The last step only renames the file with the choice. So the new program runs even if this step is cut off.
    assert steps[: whole - 1] == [("lib", True)] * (whole - 1)
    assert steps[whole - 1 :] == [("lib2", True), *[("lib2", False)] * (len(steps) - whole)]
    assert beyond > 100
