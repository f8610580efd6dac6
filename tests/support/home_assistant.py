"""A real Home Assistant core with the integration `undertone`, in an environment of its own. Tests use its HTTP API."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

from websockets.sync.client import connect

from support.micropython import REPO
from support.waiting import PATIENCE_SECONDS, wait_for

sys.path.append(str(REPO / "scripts"))

import home_assistant_zip

PROGRAM = REPO / ".tools/home-assistant/bin/hass"
# How long to wait: on a busy machine, Home Assistant needs minutes to start.
_SECONDS = 600


def hass_program() -> Path | None:
    """Return the path of Home Assistant's program, or None if `make services` has not installed it."""
    return PROGRAM if PROGRAM.exists() else None


class HomeAssistant:
    """One installation in ``folder``, which can be started and killed as often as a test likes."""

    def __init__(self, folder: Path, port: int, language: str = "en", extra: str = "") -> None:
        self.folder = folder
        self.url = f"http://127.0.0.1:{port}"
        self._token = ""
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True)
        (folder / "configuration.yaml").write_text(
            "homeassistant:\n  name: Home\n  latitude: 52\n  longitude: 5\n  elevation: 0\n"
            f"  unit_system: metric\n  time_zone: UTC\n  language: {language}\n  country: NL\n"
            f"http:\n  server_host: 127.0.0.1\n  server_port: {port}\n"
            "api:\nauth:\nconfig:\nonboarding:\nwebsocket_api:\nrepairs:\ndiagnostics:\nbackup:\n"
            f"logger:\n  default: warning\n{extra}",
            encoding="utf-8",
        )
        home_assistant_zip.main(str(folder / "undertone.zip"))
        shutil.unpack_archive(folder / "undertone.zip", folder / "custom_components/undertone")

    def watch_loop(self) -> None:
        """From the next start on, measure how long the integration keeps the event loop busy.

        See `support.loop_watch`.
        """
        place = self.folder / "custom_components/loop_watch"
        place.mkdir()
        shutil.copy(REPO / "tests/support/loop_watch.py", place / "__init__.py")
        (place / "manifest.json").write_text(
            json.dumps({"domain": "loop_watch", "name": "W", "version": "1.0.0"}), encoding="utf-8"
        )
        with (self.folder / "configuration.yaml").open("a", encoding="utf-8") as file:
            file.write("loop_watch:\n")

    def loop_times(self) -> dict[str, Any]:
        """Return what was measured. Call this after Home Assistant has ended."""
        return dict(json.loads((self.folder / "loop_watch.json").read_text(encoding="utf-8")))

    def start(self) -> None:
        """Start Home Assistant, and wait until it answers. The first start makes its owner."""
        with (self.folder / "output.log").open("ab") as log:
            self._process = subprocess.Popen(
                [str(PROGRAM), "--skip-pip", "--config", str(self.folder)],
                env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"},
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        wait_for(self._answers, _SECONDS, "Home Assistant's answer")
        if not self._token:
            self._token = self._make_owner()
        wait_for(lambda: self.get("/api/config")["state"] == "RUNNING", _SECONDS, "Home Assistant's start")

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self.log()[-3000:]
        try:
            self._ask("GET", "/api/onboarding")
        except urllib.error.HTTPError as answer:
            return answer.code == 404 and bool(self._token)
        except OSError:
            return False
        return True

    def _make_owner(self) -> str:
        owner = {"client_id": self.url, "name": "O", "username": "o", "password": "owner-1", "language": "en"}
        code = self._ask("POST", "/api/onboarding/users", owner)["auth_code"]
        form = {"grant_type": "authorization_code", "code": code, "client_id": self.url}
        request = urllib.request.Request(f"{self.url}/auth/token", urllib.parse.urlencode(form).encode())
        with urllib.request.urlopen(request, timeout=30) as answer:
            refresh = json.load(answer)["refresh_token"]
        self._refresh = refresh
        return self._new_token()

    def _new_token(self) -> str:
        form = {"grant_type": "refresh_token", "refresh_token": self._refresh, "client_id": self.url}
        request = urllib.request.Request(f"{self.url}/auth/token", urllib.parse.urlencode(form).encode())
        with urllib.request.urlopen(request, timeout=30) as answer:
            return str(json.load(answer)["access_token"])

    def tokens(self) -> dict[str, Any]:
        """Return the tokens that a browser stores once a person has logged in."""
        return {"access_token": self._new_token(), "refresh_token": self._refresh, "token_type": "Bearer"}

    def log(self) -> str:
        """Return everything that Home Assistant has printed."""
        return (self.folder / "output.log").read_text(errors="replace", encoding="utf-8")

    def kill(self) -> None:
        """End Home Assistant at once, as a power cut does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def stop(self) -> None:
        """End Home Assistant as a person does, or at once if it does not end."""
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(PATIENCE_SECONDS)
            self.kill()

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        headers = {"Content-Type": "application/json"} | (
            {"Authorization": f"Bearer {self._token}"} if self._token else {}
        )
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)

    def get(self, path: str) -> Any:
        """Return the JSON answer of a GET."""
        return self._ask("GET", path)

    def post(self, path: str, body: Any) -> Any:
        """Return the JSON answer of a POST."""
        return self._ask("POST", path, body)

    def set(self, entity: str, value: Any, unit: str = "kWh", **attributes: str) -> None:
        """Give an entity a state, as a meter's integration does."""
        known = {"unit_of_measurement": unit, "device_class": "energy", "state_class": "total_increasing"}
        self.post(f"/api/states/{entity}", {"state": str(value), "attributes": known | attributes})

    def remove(self, entity: str) -> None:
        """Remove an entity's state, as happens when an integration is deleted."""
        self._ask("DELETE", f"/api/states/{entity}")

    def states(self, part: str = "") -> dict[str, Any]:
        """Return the states of the entities whose id contains ``part``."""
        return {each["entity_id"]: each for each in self.get("/api/states") if part in each["entity_id"]}

    def call(self, domain: str, service: str, entity: str) -> None:
        """Call a service of an entity."""
        self.post(f"/api/services/{domain}/{service}", {"entity_id": entity})

    def flow(self, *steps: dict[str, Any]) -> dict[str, Any]:
        """Begin the flow of the configuration, and answer its steps; return the answer to the last step."""
        answer = self.post("/api/config/config_entries/flow", {"handler": "undertone"})
        for step in steps:
            # If a step's answer is refused, the step is shown again and does not take the fields of another step.
            assert not answer.get("errors"), answer
            answer = self.post(f"/api/config/config_entries/flow/{answer['flow_id']}", step)
        return dict(answer)

    def websocket(self, command: str, **fields: Any) -> dict[str, Any]:
        """Return the answer to one command of the WebSocket API."""
        with connect(f"{self.url.replace('http', 'ws', 1)}/api/websocket", open_timeout=30, max_size=None) as socket:
            socket.recv(30)
            socket.send(json.dumps({"type": "auth", "access_token": self._token}))
            socket.recv(30)
            socket.send(json.dumps({"id": 1, "type": command, **fields}))
            return dict(json.loads(socket.recv(120)))
