"""InfluxDB itself takes the lines of `undertone query --format influx`, and gives the same numbers back."""

import json
import shutil
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.ci import unavailable
from support.command import undertone
from support.stores import simulated_store
from support.waiting import wait_for

pytestmark = pytest.mark.services
CONFIGURATION = """\
reporting-disabled = true
bind-address = "127.0.0.1:{backup}"
[meta]
dir = "{folder}/meta"
[data]
dir = "{folder}/data"
wal-dir = "{folder}/wal"
[http]
bind-address = "127.0.0.1:{port}"
"""


def test_influxdb_takes_the_lines_and_keeps_the_numbers(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, free_port: Callable[[], int]
) -> None:
    program = shutil.which("influxd")
    if program is None:
        unavailable("needs InfluxDB: apt-get install influxdb")
    store, port = simulated_store(tmp_path_factory), free_port()
    words = ("query", store, "--newest", 5, "--filtered", "--format")
    lines, rows = (undertone(*words, kind).stdout for kind in ("influx", "jsonl"))
    expected = [row for row in map(json.loads, rows.splitlines()) if row["filtered"]]
    configuration = tmp_path / "influxdb.conf"
    configuration.write_text(CONFIGURATION.format(folder=tmp_path, port=port, backup=free_port()), encoding="utf-8")

    def ask(path: str, body: str | None = None, **parameters: str) -> Any:
        address = f"http://127.0.0.1:{port}/{path}?{urllib.parse.urlencode(parameters)}"
        data = None if body is None else body.encode()
        try:
            with urllib.request.urlopen(urllib.request.Request(address, data), timeout=60) as answer:
                text = answer.read()
                return json.loads(text) if text else answer.status
        except urllib.error.URLError as wrong:
            return wrong.read().decode() if isinstance(wrong, urllib.error.HTTPError) else None

    with (tmp_path / "influxdb.log").open("w", encoding="utf-8") as log:
        running = subprocess.Popen([program, "-config", configuration], stdout=log, stderr=log)
    try:
        wait_for(lambda: ask("ping") == 204, what="InfluxDB's answer")
        ask("query", "", q="CREATE DATABASE undertone")
        assert ask("write", lines, db="undertone", precision="ns") == 204
        (name,) = {line.partition(",")[0] for line in lines.splitlines()}
        found = ask("query", db="undertone", epoch="s", q=f'SELECT estimate, standard_error FROM "{name}"')
        (series,) = found["results"][0]["series"]
        stored = {tuple(values) for values in series["values"]}
        assert {(row["start"], row["estimate"], row["standard_error"]) for row in expected} <= stored
    finally:
        running.terminate()
        running.wait(60)
