"""The endpoint's memory and logins, compared with mosquitto's, as docs/scale.md shows them."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from undertone_operate.fleet.read_devices import ProvisionedDevice
from undertone_shared.errors import Invalid
from undertone_studies.bench import tls

RESULTS = Path(__file__).parents[2] / "docs/results"


def test_the_stored_run_met_the_goals() -> None:
    rows = json.loads((RESULTS / "tls.json").read_text(encoding="utf-8"))["rows"]
    found = {row["what"]: row["endpoint"] / row["mosquitto"] for row in rows if "mosquitto" in row}
    assert found["KB a connection"] <= 1 / tls.MEMORY
    assert found["logins a second of a core"] >= tls.LOGINS


def test_a_login_that_fails_ends_with_a_sentence(free_port: Callable[[], int]) -> None:
    device = ProvisionedDevice("load-1", ("localhost", 0), lambda: "secret", None)  # type: ignore[arg-type]
    with pytest.raises(Invalid, match="a device could not log in"):
        asyncio.run(tls.Logins(free_port(), None).log_in([device]))
