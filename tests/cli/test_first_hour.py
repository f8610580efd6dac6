"""A server starts before its first campaign. Commands create the campaign, and then its successor."""

import json
import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.command import undertone
from support.waiting import wait_for


@pytest.fixture
def served(tmp_path: Path, free_port: Callable[[], int]) -> Iterator[Callable[[], Any]]:
    """A server with a new folder without a campaign.

    The fixture's function returns the campaigns that its page lists.
    """
    page, home = free_port(), tmp_path / "home"
    ports = ("--port", free_port(), "--health", f"127.0.0.1:{free_port()}", "--page", f"127.0.0.1:{page}")
    made = undertone("init", str(home), *map(str, ports))
    assert made.returncode == 0, made.stderr
    with (tmp_path / "serve.log").open("w", encoding="utf-8") as log:
        command = [sys.executable, "-m", "undertone", "serve", str(home)]
        server = subprocess.Popen(command, stdout=log, stderr=log, env=os.environ | {"PYTHONUNBUFFERED": "1"})

    def campaigns() -> Any:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{page}/api/v1/campaigns", timeout=60) as answer:
                return json.load(answer)["campaigns"]
        except (urllib.error.URLError, OSError):
            assert server.poll() is None, (tmp_path / "serve.log").read_text(encoding="utf-8")
            return None

    try:
        yield campaigns
        server.send_signal(signal.SIGTERM)
        assert server.wait(120) == 0
        assert "Traceback" not in (tmp_path / "serve.log").read_text(encoding="utf-8")
        assert "error" not in (tmp_path / "serve.log").read_text(encoding="utf-8")
    finally:
        server.kill()
        server.wait()


def done(*words: object) -> str:
    finished = undertone(*map(str, words))
    assert finished.returncode == 0, (words, finished.stderr)
    return finished.stdout


@pytest.mark.waits
def test_a_server_without_a_campaign_waits_with_its_page_and_ends_well(served: Callable[[], Any]) -> None:
    wait_for(lambda: served() == [])


@pytest.mark.slow
@pytest.mark.long
def test_the_first_campaign_is_taken_up_and_its_fleet_needs_no_name_after_a_successor(
    served: Callable[[], Any], tmp_path: Path
) -> None:
    wait_for(lambda: served() == [])
    home = tmp_path / "home"
    given = ("--sensor", "load", "--unit", "Wh", "--bound", 1000, "--epsilon", 1, "--slot-seconds", 60)
    done("campaign", "create", home, "load", *given)
    done("devices", "add", 4, "--home", home)
    wait_for(lambda: [each.get("server", {}).get("state") for each in served() or []] == ["running"])
    done("campaign", "succeed", home, "load", "load-2")
    # The list says when the successor starts.
    wait_for(lambda: re.search(r"^load-2: starts 20\d\d-\d\d-\d\d", done("campaign", "list", home), re.MULTILINE))
    listed = json.loads(done("devices", "list", "--home", home, "--json"))
    assert [row["name"] for row in listed] == [f"load-{number:03d}" for number in (1, 2, 3, 4)]
    assert "load-002" in done("devices", "show", "load-002", "--home", home)
    done("devices", "rotate", "load-002", "--home", home)
    done("devices", "move", "load-003", "--home", home, "--group", "north")
    assert done("devices", "revoke", "load-001", "--home", home).startswith("load-001 is revoked")
    for campaign in ("load", "load-2"):
        rows = json.loads(done("devices", "list", "--home", home, "--campaign", campaign, "--json"))
        assert {row["name"]: (row["state"], row["group"]) for row in rows} == {
            "load-001": ("revoked", "all"),
            "load-002": ("active", "all"),
            "load-003": ("active", "north"),
            "load-004": ("active", "all"),
        }
    done("devices", "forget", "load-001", "--home", home)
    assert json.loads(done("devices", "conflicts", "--home", home, "--json")) == []
