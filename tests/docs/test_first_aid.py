"""The table of first aid has each word that explains why a device is silent, and no other word."""

import re

from support import micropython as mp
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
