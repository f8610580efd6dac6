"""Alerts and dashboard name metrics that exist; promtool, where it is installed, checks the rules and their tests."""

import json
import re
import shutil
import subprocess

import pytest

from support.micropython import REPO
from undertone_aggregator.metrics import COUNTER, FAMILIES

DEPLOY = REPO / "aggregator" / "deploy"
KNOWN = {f"{name}_total" if kind == COUNTER else name for name, (kind, _, _) in FAMILIES.items()}


def named(text: str) -> set[str]:
    return set(re.findall(r"\bundertone_[a-z_]+", text))


@pytest.mark.parametrize("file", ["alerts.yml", "alerts.test.yml", "dashboard.json"])
def test_every_metric_that_is_named_exists(file: str) -> None:
    text = (DEPLOY / file).read_text()
    if file.endswith(".json"):
        text = " ".join(target["expr"] for panel in json.loads(text)["panels"] for target in panel["targets"])
    assert named(text)
    assert named(text) <= KNOWN


@pytest.mark.skipif(shutil.which("promtool") is None, reason="needs promtool (apt install prometheus)")
@pytest.mark.parametrize("what", [["check", "rules", "alerts.yml"], ["test", "rules", "alerts.test.yml"]])
def test_promtool_agrees(what: list[str]) -> None:
    checked = subprocess.run(["promtool", *what], cwd=DEPLOY, capture_output=True, text=True, timeout=60)
    assert checked.returncode == 0, checked.stdout + checked.stderr
