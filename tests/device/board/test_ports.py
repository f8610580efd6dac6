"""The code for boards calls no method of str that the smallest port lacks."""

import re

from undertone_device.tools.compile import board_files
from undertone_device.tools.shipped import LISTS

# Methods of str that the ESP8266 does not have.
_ABSENT = re.compile(r"\.r?partition\(")


def test_no_boards_module_calls_what_an_esp8266_has_not() -> None:
    files = board_files(*LISTS)
    assert any("sensors/p1" in str(source) for source in files.values())
    for source in files.values():
        assert not _ABSENT.search(source.read_text(encoding="utf-8")), source
