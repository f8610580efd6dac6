"""Tests of the test harness: a test that fails under one interpreter alone is noticed, and CI hides no skip."""

import os
import re
import shutil
import subprocess
import sys
from itertools import groupby
from pathlib import Path
from types import SimpleNamespace

import pytest

from support import micropython as mp
from support.ci import ABSENT
from support.order import dealt

TESTS = mp.REPO / "tests"
INI = """[pytest]
testpaths = tests
addopts = -m "not slow and not services" -p no:cacheprovider --import-mode=importlib
markers = slow: x
    micropython: x
    micropython32: x
    float32: x
    broker: x
    data: x
    services: x
"""
DIFFERENT = """
import os, sys

def test_same():
    assert os.listdir(".") == []
    open("file", "w").close()

def test_needs_small_integers_of_64_bits():
    print("printed by the test")
    assert sys.maxsize > 2**31

def test_needs_cpython():
    import typing

def test_exits():
    if sys.implementation.name == "micropython":
        sys.exit(0)

def test_after():
    pass
"""
DEADLY = """
RUNS_ON = ("micropython",)

def test_before():
    pass

def test_dies():
    import uctypes
    uctypes.bytearray_at(0, 1)[0]

def test_never_begun():
    pass
"""


@pytest.fixture
def project(tmp_path) -> Path:
    (tmp_path / "pytest.ini").write_text(INI, encoding="utf-8")
    (tmp_path / "tests").mkdir()
    shutil.copy(TESTS / "conftest.py", tmp_path / "tests")
    return tmp_path


def run_pytest(project: Path, *options: str, **environment: str) -> tuple[int, str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "CI"))}
    env |= {"PYTHONPATH": str(TESTS), "COLUMNS": "200", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"} | environment
    command = [sys.executable, "-m", "pytest", "-rA", *options]
    done = subprocess.run(command, cwd=project, env=env, capture_output=True, encoding="utf-8", timeout=120)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.usefixtures("micropython")
def test_each_interpreter_has_its_own_result(project):
    folder = project / "tests/some/both"
    folder.mkdir(parents=True)
    (folder / "test_different.py").write_text(DIFFERENT, encoding="utf-8")
    (folder / "test_deadly.py").write_text(DEADLY, encoding="utf-8")
    code, output = run_pytest(project, "-p", "xdist.plugin", "-n1")
    assert code == 1
    lines = re.findall(r"^(PASSED|FAILED) \S+::(\w+)\[(\w+)\]", output, re.MULTILINE)
    results = {}
    for result, test, flavour in lines:
        results.setdefault(test, {})[flavour] = result[0]
    expected = {
        "test_same": "PPP",
        "test_needs_small_integers_of_64_bits": "PPF",
        "test_needs_cpython": "PFF",
        "test_exits": "PFF",
        "test_after": "PPP",
    }
    # Floats of 32 bits make no difference for these tests.
    flavours = {"cpython": 0, "micropython": 1} | ({"micropython32": 2} if mp.interpreter32() else {})
    flavours |= {"float32": 1} if mp.ulab_folder().is_dir() else {}
    deadly = {"test_before": "P", "test_dies": "F", "test_never_begun": "F"}
    rows = {name: {flavour: row[i] for flavour, i in flavours.items()} for name, row in expected.items()}
    assert results == rows | {name: {"micropython": result} for name, result in deadly.items()}, output
    assert "ImportError: no module named 'typing'" in output
    assert ("printed by the test\nTraceback" in output) == bool(mp.interpreter32())
    assert "the interpreter ended with exit code -" in output
    assert f"{5 * len(flavours) - 5 + 3} tests ran under MicroPython" in output


@pytest.mark.slow
@pytest.mark.skipif(not mp.interpreter32(), reason=mp.MISSING32)
def test_without_the_unix_port_the_one_under_node_takes_its_place(project):
    folder = project / "tests/some/both"
    folder.mkdir(parents=True)
    (folder / "test_any.py").write_text("def test_any():\n    pass\n", encoding="utf-8")
    sockets = 'RUNS_ON = ("micropython",)\ndef test_sockets():\n    pass\n'
    (folder / "test_sockets.py").write_text(sockets, encoding="utf-8")
    plugin = "import support.micropython\nsupport.micropython.interpreter = lambda: None\n"
    (project / "without.py").write_text(plugin, encoding="utf-8")
    code, output = run_pytest(project, "-p", "without", PYTHONPATH=os.pathsep.join([str(TESTS), str(project)]))
    assert code == 0, output
    assert "PASSED tests/some/both/test_any.py::test_any[micropython32]" in output
    assert "test_any[micropython]" not in output
    assert "1 tests were skipped" in output
    assert "no MicroPython here" in output


@pytest.mark.slow
def test_ci_wants_tests_under_micropython(project):
    (project / "tests/test_any.py").write_text("def test_any():\n    pass\n", encoding="utf-8")
    assert run_pytest(project)[0] == 0
    code, output = run_pytest(project, CI="true")
    assert code == 1
    assert "no test ran under MicroPython" in output
    # A part of the tests may run without MicroPython.
    assert run_pytest(project, "tests/test_any.py", CI="true")[0] == 0
    # A part may also have only tests that need services.
    served = "import pytest\n\n@pytest.mark.services\ndef test_served():\n    pass\n"
    (project / "tests/test_any.py").write_text(served, encoding="utf-8")
    assert run_pytest(project, "-m", "services and not slow", CI="true")[0] == 0


@pytest.mark.slow
def test_ci_accepts_no_skip_but_for_what_a_machine_may_lack(project):
    source = """
import pytest

from support.ci import absent

def test_with_data(undertone_data):
    pytest.skip("too lazy")

def test_without():
    pytest.skip("too lazy")

def test_elsewhere():
    absent("a printer")
"""
    (project / "tests/test_any.py").write_text(source, encoding="utf-8")
    only = "tests/test_any.py"
    code, output = run_pytest(project, only, UNDERTONE_DATA=str(project))
    assert code == 0
    assert "  2: too lazy" in output
    assert "  1: not on this machine: a printer\n    tests/test_any.py::test_elsewhere" in output
    code, output = run_pytest(project, only, UNDERTONE_DATA=str(project), CI="true")
    assert code == 1
    assert re.findall(r"^CI=true: \S+::(\w+) was skipped: too lazy", output, re.MULTILINE) == [
        "test_with_data",
        "test_without",
    ]


def test_absent_data_are_a_skip_that_says_where_they_were_looked_for(project):
    (project / "tests/test_any.py").write_text("def test_any(undertone_data):\n    pass\n", encoding="utf-8")
    missing = str(project / "nowhere")
    code, output = run_pytest(project, "tests/test_any.py", UNDERTONE_DATA=missing, CI="true")
    assert code == 0
    assert f"1: {ABSENT}no data sets at {missing}: set UNDERTONE_DATA" in output


@pytest.mark.usefixtures("micropython")
def test_the_interpreter_gets_its_arguments_heap_and_sources():
    code = "import gc, sys, undertone_shared\nprint(sys.argv[1:], gc.mem_free() + gc.mem_alloc() < 70_000)"
    result = mp.run_micropython(code, "a", "b", heap="64k")
    assert (result.returncode, result.stdout) == (0, "['a', 'b'] True\n"), result.stderr


@pytest.mark.usefixtures("micropython")
def test_a_compiled_package_is_imported_by_the_interpreter(tmp_path):
    mp.compile_mpy(mp.REPO / "shared/undertone_shared", tmp_path)
    code = "import undertone_shared.report as r, sys\nprint(r.LENGTH, r.__file__)"
    result = mp.run_micropython(code, paths=[tmp_path], heap="64k")
    assert result.stdout == f"24 {tmp_path}/undertone_shared/report.mpy\n", result.stderr


@pytest.mark.skipif(not mp.interpreter32(), reason=mp.MISSING32)
@pytest.mark.micropython
@pytest.mark.micropython32
def test_the_32_bit_interpreter_has_the_sources_arguments_and_random_bytes():
    code = (
        "import os, sys, undertone_shared\nfrom extra import x\n"
        "print(sys.argv[1:], sys.maxsize, x, len(os.urandom(33)))\nimport binascii\nbinascii.a2b_base64('YQ')"
    )
    result = mp.run_micropython32(code, "a", files={"/lib/extra.py": "x = 5"})
    assert result.stdout == "['a'] 2147483647 5 33\n"
    assert (result.returncode, "ValueError: Incorrect padding" in result.stderr) == (1, True)


class Item(SimpleNamespace):
    """A stand-in for a test of pytest, with the attributes that `dealt` reads."""


def test_workers_begin_with_the_tests_that_wait_but_for_one_on_each_processor(monkeypatch):
    items = [Item(nodeid=f"file{n // 10}.py::test{n}", keywords=()) for n in range(400)]
    for n in (100, 101, 205, 300, 301):
        items[n].keywords = {205: ("broker",), 300: ("long",), 301: ("long",)}.get(n, ("waits", "broker"))
    for workers in (1, 2, 3, 4, 7):
        made = dealt(items, workers)
        assert sorted(item.nodeid for item in made) == sorted(item.nodeid for item in items)
        # Each file's tests stay together and in order.
        assert [key for key, _ in groupby(made, lambda item: item.nodeid.partition("::")[0])].count("file10.py") == 1
        assert [item for item in made if item in items[100:110]] == items[100:110]
    for processors, computing in ((1, 1), (2, 2), (16, 2)):
        monkeypatch.setattr(os, "cpu_count", lambda count=processors: count)
        four = dealt(items, 4)
        waiting = 4 - computing
        begins = [four[worker * 100].nodeid for worker in range(min(waiting, 2))]
        assert begins == ["file30.py::test300", "file30.py::test301"], "the heaviest, each by itself"
        assert any(item.keywords for item in four[(waiting - 1) * 100 : waiting * 100])
        assert not any(item.keywords for item in four[waiting * 100 :]), "the others compute"
