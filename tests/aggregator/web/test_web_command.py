"""How the page's process begins and ends: its address, a port in use, and missing packages or files."""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from undertone_aggregator.base import packages
from undertone_aggregator.base.packages import METRICS, PAGE, chart_warning, check_packages, missing_packages
from undertone_aggregator.store.store import open_store
from undertone_aggregator.web.app import STATIC
from undertone_shared.errors import Invalid


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "load.sqlite"
    open_store(path, campaign="load").close()
    return path


def web(*arguments: str | Path, code: str = "") -> list[str]:
    """The command line that runs `undertone web`; ``code`` runs in the process before it."""
    command = ["web", *map(str, arguments)]
    run = f"import sys; sys.argv = {['undertone', *command]!r}; {code}\nfrom undertone.__main__ import main\n"
    return [sys.executable, "-c", run + "sys.exit(main())"]


@pytest.mark.slow
def test_the_address_is_printed_and_answers(store: Path) -> None:
    with subprocess.Popen(web(store, "--listen", "127.0.0.1:0"), stdout=subprocess.PIPE, encoding="utf-8") as running:
        assert running.stdout is not None
        said = running.stdout.readline()
        address = said.split("http://")[1].strip()
        connection = http.client.HTTPConnection(address, timeout=60)
        connection.request("GET", "/api/v1/campaigns")
        assert json.load(connection.getresponse())["campaigns"]
        connection.close()
        running.send_signal(signal.SIGINT)
        assert running.wait(60) in (0, 130)


@pytest.mark.slow
def test_a_port_in_use_is_one_sentence(store: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = subprocess.run(
            web(store, "--listen", address), capture_output=True, encoding="utf-8", timeout=120, check=False
        )
    assert done.returncode == 2
    errors = [line for line in done.stderr.splitlines() if not line.startswith("warning: the page draws no charts")]
    assert errors == [f"error: the page cannot listen at {address}: Address already in use"]


@pytest.mark.slow
def test_a_page_that_fails_ends_in_one_sentence_while_its_server_lives(store: Path) -> None:
    """One thread of the page's process waits for the end of standard input, which a running server keeps open."""
    reading, writing = os.pipe()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        command = web(store, "--listen", address, "--attached")
        done = subprocess.run(command, stdin=reading, capture_output=True, encoding="utf-8", timeout=120, check=False)
    os.close(reading)
    os.close(writing)
    assert done.returncode == 2
    assert "Fatal" not in done.stderr
    assert "cannot be used" in done.stderr.splitlines()[-1]


@pytest.mark.slow
def test_a_missing_package_is_one_sentence_before_anything_starts(store: Path) -> None:
    hidden = "sys.modules['uvicorn'] = None; import importlib.util as u; f = u.find_spec;"
    hidden += " u.find_spec = lambda name, *a: None if name == 'uvicorn' else f(name, *a)"
    done = subprocess.run(web(store, code=hidden), capture_output=True, encoding="utf-8", timeout=120, check=False)
    assert done.returncode == 2
    assert "error: the page needs uvicorn: pip install 'undertone-ldp[web]'" in done.stderr.splitlines()


def test_what_is_missing_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    check_packages(PAGE)
    assert missing_packages(METRICS) == ""
    monkeypatch.setattr(packages, "find_spec", lambda name: None)
    with pytest.raises(Invalid, match=r"the page needs starlette, sse_starlette, uvicorn, markdown_it: .*\[web\]"):
        check_packages(PAGE)
    assert missing_packages(METRICS) == "/metrics needs prometheus_client: pip install 'undertone-ldp[server]'"


@pytest.mark.slow
def test_serve_checks_its_page_before_it_starts(tmp_path: Path, free_port: Callable[[], int]) -> None:
    (tmp_path / "server.toml").write_text(f'[server]\npage = "127.0.0.1:{free_port()}"\n', encoding="utf-8")
    code = (
        f"import sys; sys.argv = ['undertone', 'serve', {str(tmp_path)!r}, '--seconds', '0']\n"
        "from undertone_aggregator.base import packages\npackages.find_spec = lambda name: None\n"
        "from undertone.__main__ import main\nsys.exit(main())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, encoding="utf-8", timeout=120, check=False)
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        "error: the page needs starlette, sse_starlette, uvicorn, markdown_it: pip install 'undertone-ldp[web]'"
    ]


def test_the_chart_library_is_looked_for_where_the_page_has_it():
    assert packages._CHARTS.parents[1] == STATIC


def test_a_checkout_without_the_chart_library_is_told_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(packages, "_CHARTS", tmp_path / "uPlot.iife.min.js")
    assert "scripts/vendor.py" in chart_warning()
    assert str(tmp_path) in chart_warning()
    (tmp_path / "uPlot.iife.min.js").touch()
    assert chart_warning() == ""
