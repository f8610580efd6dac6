"""Two tables explain every word: why a device is silent (first aid), and why a report was refused."""

import re

from support import micropython as mp
from undertone_aggregator.ingest.admission import DUPLICATES, REASONS
from undertone_device.host import household

# These words are printed in the same place, but do not explain a silence.
OTHERS = {"offline", "online"}


def words_of_the_table() -> set[str]:
    page = (mp.REPO / "docs/boards.md").read_text(encoding="utf-8")
    rows = page.split("## First aid\n")[1].split("\n## ")[0].splitlines()
    first = [row.split("|")[1] for row in rows if row.startswith("| `")]
    return {word for cell in first for word in re.findall(r"`([a-z_]+)`", cell)}


def test_the_table_of_first_aid_has_every_reason_for_silence() -> None:
    assert words_of_the_table() - OTHERS == set(household.WHY)


def test_the_servers_manual_explains_every_reason_of_a_refusal():
    page = (mp.REPO / "aggregator/README.md").read_text(encoding="utf-8")
    table = page.split("## Why was a report refused?\n")[1].split("\n## ")[0]
    assert [reason for reason in (*REASONS, *DUPLICATES) if f"`{reason}`" not in table] == []
