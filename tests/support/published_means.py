"""The means that a server publishes over MQTT, as a reader gets them.

Each is the mean at the time when its slot settled. The page and the store show a number that later slots have improved.
"""

import json
import tomllib
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion

from support.paho_client import leave
from support.waiting import wait_for

_READER = "listener"


class PublishedMeans:
    """Keeps the smoothed means of one campaign and all its groups that are published from now on.

    It also keeps the newest earlier mean of each group, because that message is retained.

    ``home``: the folder of a running server. ``run``: a function that runs a command of `undertone`. ``of``: group ->
    slot -> the message's fields.
    """

    def __init__(self, home: Path, campaign: str, run: Callable[..., object]) -> None:
        run("readers", "add", _READER, "--home", str(home))
        broker = tomllib.loads((home / "server.toml").read_text(encoding="utf-8"))["broker"]
        password = (home / f"readers/{_READER}.password").read_text(encoding="utf-8").strip()
        self.of: dict[str, dict[int, dict[str, Any]]] = defaultdict(dict)
        self._topics = f"{broker['prefix']}/{campaign}/aggregate/+/filtered"
        self._granted = False
        self._client = mqtt.Client(CallbackAPIVersion.VERSION2)
        self._client.username_pw_set(_READER, password)
        # The server knows a new reader a second later. Until then it refuses the client, which tries again.
        self._client.reconnect_delay_set(1, 1)
        self._client.on_connect = self._on_connect
        self._client.on_subscribe = self._on_subscribe
        self._client.on_message = self._on_message
        wait_for(lambda: self._connects(broker["port"]), what="a server that listens")
        self._client.loop_start()
        wait_for(lambda: self._granted, what="the subscription of a reader")

    def _connects(self, port: int) -> bool:
        try:
            return self._client.connect("127.0.0.1", port) == mqtt.MQTT_ERR_SUCCESS
        except ConnectionRefusedError:
            return False

    def _on_connect(self, client: mqtt.Client, _d: object, _f: object, reason: mqtt.ReasonCode, _p: object) -> None:
        if not reason.is_failure:
            client.subscribe(self._topics, 1)

    def _on_subscribe(self, *_: object) -> None:
        self._granted = True

    def _on_message(self, _c: object, _d: object, message: mqtt.MQTTMessage) -> None:
        fields = json.loads(message.payload)
        self.of[message.topic.split("/")[-2]][fields["slot"]] = fields

    def estimates(self, group: str) -> list[float]:
        """Return the means of the group that were received."""
        return [fields["estimate"] for fields in self.of[group].values()]

    def close(self) -> None:
        """Disconnect."""
        leave(self._client)
