"""Draw what Home Assistant shows a household, from the discovery message and a state that a device publishes.

usage: .venv/bin/python scripts/household_card.py    (then make diagrams)
"""

import json
from pathlib import Path
from typing import Any

from undertone_device.host.home_assistant import HomeAssistantCard
from undertone_device.mqtt.packets import CONNECTED

OUT = Path(__file__).resolve().parents[1] / "docs/diagrams/household.dot"
# The status after about four months at epsilon = ln 3, with a day of rest between two reports.
STATUS = {
    "campaign": {"name": "power", "certificates": {"report": [3, 1]}, "stream": None},
    "cap": [3, 1],
    "most_a_day": 1,
    "month": round(30 * 1.0986 * (1 << 20)),
    "ever": round(112 * 1.0986 * (1 << 20)),
    "ever_rho": 0,
    "lifetime": round(402 * 1.0986 * (1 << 20)),
    "losses": 0,
    "time": 1_795_300_000,
    "began": 1_785_000_000,
    "streams": None,
    "spent_until": 1_795_300_000,
    "sequence": 112,
    "paused": None,
    "refusals": {"epsilon": 1},
}
COLUMNS = 2
HEAD = """\
// What Home Assistant shows a household; made by scripts/household_card.py from the discovery message.
digraph household {
  rankdir=LR
  graph [bgcolor="white", fontname="Helvetica", fontsize=14, pad=0.2, nodesep=0.12, ranksep=0.12]
  node [shape=box, style="rounded,filled", fillcolor="#eef5f4", color="#2a7f78", fontname="Helvetica", fontsize=11, \
width=2.6]
"""


class Kept:
    """A broker that records publications."""

    def __init__(self) -> None:
        self.messages: dict[str, bytes] = {}
        self._events: list[tuple[str]] = [(CONNECTED,)]

    def connect(self) -> None:
        """Connect at once."""

    def poll(self, milliseconds: int) -> list[tuple[str]]:
        """Return the connection event, once."""
        events, self._events = self._events, []
        return events

    def publish(self, topic: str, payload: bytes, retain: bool = False) -> None:
        """Record a publication."""
        self.messages[topic] = payload


def card() -> str:
    """Return the drawing's text: a tile for each sensor that is not a diagnostic one."""
    broker: Any = Kept()
    HomeAssistantCard("meter-17", broker, "homeassistant").show(STATUS)
    device = next(json.loads(text) for topic, text in broker.messages.items() if topic.endswith("/config"))
    sensors = {key: each for key, each in device["components"].items() if "entity_category" not in each}
    state = json.loads(broker.messages[next(iter(sensors.values()))["state_topic"]])
    tiles = []
    for key, sensor in sensors.items():
        value = state[key]
        shown = {False: "off", True: "on"}[value] if sensor["platform"] == "binary_sensor" else value
        tiles.append(f"{sensor['name']}\\n{shown} {sensor.get('unit_of_measurement', '')}".rstrip())
    lines = [f'  subgraph cluster_card {{ label="{device["device"]["name"]}"; style=rounded; color="#999999"']
    lines += [f'    t{i} [label="{tile}"]' for i, tile in enumerate(tiles)]
    lines += [f"    t{i} -> t{i + 1} [style=invis]" for i in range(0, len(tiles) - 1, COLUMNS)]
    return HEAD + "\n".join([*lines, "  }", "}"]) + "\n"


if __name__ == "__main__":
    OUT.write_text(card(), encoding="utf-8")
