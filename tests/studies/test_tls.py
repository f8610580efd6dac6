"""Memory and logins of the endpoint beside mosquitto's, as docs/scale.md shows them."""

import json
from pathlib import Path

from undertone_studies.bench import tls

RESULTS = Path(__file__).parents[2] / "docs/results"


def test_the_stored_run_met_the_goals() -> None:
    rows = json.loads((RESULTS / "tls.json").read_text(encoding="utf-8"))["rows"]
    found = {row["what"]: row["endpoint"] / row["mosquitto"] for row in rows if "mosquitto" in row}
    assert found["KB a connection"] <= 1 / tls.MEMORY
    assert found["logins a second of a core"] >= tls.LOGINS
