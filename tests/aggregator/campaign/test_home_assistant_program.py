"""Home Assistant itself as a reader at the endpoint: it finds the entities and shows their values."""

import json
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support import server
from support.ci import unavailable
from support.direct import PREFIX, open_endpoint, password, write_passwords
from support.micropython import REPO
from support.waiting import wait_for
from undertone_aggregator.campaign.collection import guarantee_of
from undertone_aggregator.campaign.home_assistant import discovery, removal
from undertone_aggregator.campaign.publish import estimate_message, to_json
from undertone_aggregator.counts.epochs import Timeline
from undertone_aggregator.estimate.estimates import Estimate, Series
from undertone_aggregator.mqtt import credentials
from undertone_device.host.home_assistant import HomeAssistantCard
from undertone_shared.off_board.discovery import config_topic
from undertone_shared.off_board.issue import aggregate_topic

pytestmark = pytest.mark.services
PYTHON = REPO / ".tools/home-assistant/bin/python"
CHILD = REPO / "tests/support/home_assistant_child.py"
HOUSE, WEST = Series(filtered=True), Series("west", filtered=True)
Shown = dict[str, dict[str, Any]]


def row(series: Series, estimate: float | None, kind: str = "report") -> Estimate:
    low, high = (None, None) if estimate is None else (estimate - 0.5, estimate + 0.5)
    error = None if estimate is None else 0.25
    return Estimate(server.FIRST, server.FIRST, series, kind, 400, 20, estimate or 0.0, error, low, high, 500)


class HomeAssistant:
    """The program Home Assistant. ``shown``: its MQTT entities, by their unique identifiers."""

    def __init__(self, folder: Path, port: int, http: int) -> None:
        self.shown: Shown = {}
        folder.mkdir()
        command = [PYTHON, CHILD, folder, str(port), "home", password("home"), str(http)]
        with (folder.parent / "home-assistant.log").open("w", encoding="utf-8") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, encoding="utf-8"
            )
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.shown = json.loads(line)

    def state(self, key: str) -> str | None:
        """The state of an entity of the campaign."""
        return self.shown.get(f"undertone_meters_{key}", {}).get("state")

    def end(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        assert self._process.wait(120) == 0
        self._thread.join()
        self._process.stdout.close()


def household(program: HomeAssistant) -> list[dict[str, Any]]:
    """The entities that belong to the household and not to the campaign."""
    return [each for each in program.shown.values() if each["device"] != "Undertone meters"]


def test_home_assistant_shows_what_the_endpoint_publishes(tmp_path: Path, free_port: Callable[[], int]) -> None:
    if not PYTHON.exists():
        unavailable("Home Assistant is not installed: make services")
    issued = server.campaign(theta=500)
    plan = server.plan(sensor='"temperature"', unit='"°C"', measure='"mean"')
    rules = {"cohort": issued.cohort, "report": issued.report, "schedule": issued.schedule}
    campaign = plan.epoch(server.FIRST, server.FIRST + 1000, **rules)
    guarantee = guarantee_of(Timeline(server.two_epochs()), plan.budget)
    access = tmp_path / "access"
    credentials.write_access_rules(access, PREFIX, {})
    credentials.write_readers(access, PREFIX, ["home"])
    files = write_passwords(tmp_path / "passwords", ["home", "aggregator"])
    with open_endpoint(files, access=access) as endpoint:

        def publish(estimate: Estimate) -> None:
            topic = aggregate_topic(PREFIX, "meters", estimate.series.topic)
            endpoint.publish(topic, estimate_message(estimate, campaign, guarantee))

        found = discovery("homeassistant", PREFIX, campaign, [HOUSE, WEST], guarantee.sentence)
        endpoint.publish(*found)
        card = HomeAssistantCard("meter-17", None, "homeassistant")  # type: ignore[arg-type]
        endpoint.publish(config_topic("homeassistant", "undertone_device_meter-17"), card._config())
        status = {"theta": 500, "phase": "report", "lost": {"all": {"reports": 3}}}
        endpoint.publish(aggregate_topic(PREFIX, "meters", "status"), to_json(status))
        publish(row(HOUSE, 21.23456789))
        publish(row(WEST, 19.0, "model"))
        program = HomeAssistant(tmp_path / "home", endpoint.port, free_port())
        try:
            wait_for(lambda: program.state("all_filtered_estimate") == "21.2", seconds=300, what="the mean")
            wait_for(lambda: program.state("lost") == "3", seconds=60, what="reports lost")
            # Home Assistant adds one entity after another; each is "unavailable" until its topic has a message.
            bounds = ("all_filtered_low", "all_filtered_high", "west_filtered_estimate")
            wait_for(
                lambda: not {None, "unavailable"} & set(map(program.state, bounds)),
                seconds=60,
                what="the other entities",
            )
            components = json.loads(card._config())["components"]
            wait_for(lambda: len(household(program)) == len(components), seconds=60, what="the household's entities")
            mean = program.shown["undertone_meters_all_filtered_estimate"]
            expected = {"unit_of_measurement": "°C", "device_class": "temperature", "state_class": "measurement"}
            assert {name: mean["attributes"].get(name) for name in expected} == expected
            assert mean["precision"] == 1
            assert mean["device"] == "Undertone meters"
            assert program.state("all_filtered_low") == "20.7"
            assert program.state("all_filtered_high") == "21.7"
            assert program.state("west_filtered_estimate") == "unknown", "a threshold round estimates nothing"
            assert program.shown["undertone_meters_lost"]["attributes"]["state_class"] == "total_increasing"
            publish(row(HOUSE, 22.0))
            wait_for(lambda: program.state("all_filtered_estimate") == "22.0", what="the next slot's mean")
            endpoint.publish(*removal("homeassistant", "meters"))
            wait_for(lambda: program.state("all_filtered_estimate") is None, what="a campaign that is gone")
        finally:
            program.end()
