"""A server, a Home Assistant, and a home that takes part in the server's campaign."""

import json

import pytest

from support.ci import unavailable
from support.home_assistant import HomeAssistant, hass_program
from support.joined_home import Meter, Server, join, write_each_report_down


@pytest.fixture
def server(tmp_path, free_port):
    """A running server with the campaign ``energy``."""
    running = Server(tmp_path / "server", free_port)
    try:
        running.start()
        yield running
    finally:
        running.stop()


@pytest.fixture
def home(tmp_path, free_port):
    """A running Home Assistant, whose log is checked at the end (`check_log`)."""
    if hass_program() is None:
        unavailable("Home Assistant, which make services installs")
    running = HomeAssistant(tmp_path / "home", free_port())
    try:
        running.start()
        yield running
    finally:
        running.stop()
    check_log(running)


def check_log(home):
    """Check that the log has no error and no blocking call of the integration, and no secret of its devices."""
    lines = home.log().splitlines()
    blocking = [line for line in lines if "blocking call" in line and "undertone" in line]
    assert blocking == []
    errors = [line for line in lines if " ERROR " in line and "undertone" in line]
    assert errors == []
    for secret in secrets_of(home):
        assert secret not in home.log()


def secrets_of(home):
    """The codes, keys and passwords of the home's devices."""
    found = []
    for path in (home.folder / ".storage/undertone").glob("*/join.json"):
        joined = json.loads(path.read_text(encoding="utf-8"))
        found += [joined["key"], joined["link"]["code"]]
    found += [
        path.read_text(encoding="utf-8").strip() for path in (home.folder / ".storage/undertone").glob("*/password")
    ]
    return found


@pytest.fixture
def meter(home):
    """The meter of the home."""
    return Meter(home)


@pytest.fixture
def joined(home, server, meter):
    """The folder of a home's device that takes part and notes what it sends."""
    folder = join(home, server)
    write_each_report_down(home, folder)
    meter.show()
    return folder
