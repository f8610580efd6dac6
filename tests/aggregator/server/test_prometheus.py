"""A real Prometheus reads a running server's metrics, loads our alerts, and evaluates every panel of the dashboard."""

import json
import shutil
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.ci import unavailable
from support.direct import write_home
from support.many import PLAN, Running
from support.micropython import REPO
from support.waiting import wait_for
from undertone_aggregator.server.folder import Home

DEPLOY = REPO / "aggregator/deploy"
CONFIG = """\
global:
  scrape_interval: 1s
  evaluation_interval: 1s
rule_files: [{rules}]
scrape_configs:
  - job_name: undertone
    static_configs:
      - targets: ["127.0.0.1:{port}"]
"""

pytestmark = pytest.mark.services


def ask(port: int, path: str, **parameters: str) -> Any:
    query = urllib.parse.urlencode(parameters)
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/{path}?{query}", timeout=60) as answer:
            return json.load(answer)["data"]
    except OSError:
        return None


def test_it_scrapes_alerts_and_draws(tmp_path: Path, free_port: Callable[[], int]) -> None:
    program = shutil.which("prometheus")
    if program is None:
        unavailable("needs prometheus: apt install prometheus")
    write_home(tmp_path, free_port(), prefix="undertone-test/prometheus")
    for name in ("power", "water"):
        Home(tmp_path).write_plan(name, PLAN.format(name=name, epsilon=1))
    running, port = Running(tmp_path), free_port()
    prometheus = None
    try:
        wait_for(lambda: bool(running.port) and running.get("/readyz")[0] == 200, what="all campaigns ready")
        config = tmp_path / "prometheus.yml"
        config.write_text(CONFIG.format(rules=DEPLOY / "alerts.yml", port=running.port), encoding="utf-8")
        command = [program, f"--config.file={config}", f"--storage.tsdb.path={tmp_path / 'data'}"]
        with (tmp_path / "prometheus.log").open("w", encoding="utf-8") as log:
            prometheus = subprocess.Popen([*command, f"--web.listen-address=127.0.0.1:{port}"], stderr=log)

        def ready() -> set[str]:
            data = ask(port, "query", query="undertone_campaign_ready == 1")
            return {sample["metric"]["campaign"] for sample in data["result"]} if data else set()

        wait_for(lambda: ready() == {"power", "water"}, what="both campaigns scraped")
        assert ask(port, "query", query='up{job="undertone"}')["result"][0]["value"][1] == "1"
        wait_for(
            lambda: all(rule["health"] == "ok" for group in ask(port, "rules")["groups"] for rule in group["rules"])
        )
        firing = {alert["labels"]["alertname"] for alert in ask(port, "alerts")["alerts"] if alert["state"] == "firing"}
        assert firing <= {"UndertoneEnds", "UndertoneUnsigned", "UndertoneAlarm"}, (
            "these campaigns are short and unsigned, and get no reports"
        )
        for panel in json.loads((DEPLOY / "dashboard.json").read_text(encoding="utf-8"))["panels"]:
            for target in panel["targets"]:
                expression = (
                    target["expr"].replace("$campaign", ".*").replace("$group", ".*").replace("$__rate_interval", "1m")
                )
                assert ask(port, "query", query=expression, time=str(time.time())) is not None, expression
    finally:
        if prometheus is not None:
            prometheus.terminate()
            prometheus.wait(120)
        running.end()
