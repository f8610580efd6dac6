"""The guide from a Dutch or Belgian meter to the first report, followed with its own settings and program.

A recorded telegram of a meter, with registers that rise, comes over a stand-in for the board's UART. Apart from that,
only the times differ from the guide: they are shorter.
"""

import json
import re
import sys

import pytest

from support import micropython as mp
from support.board_site import BoardSite
from support.guides import blocks, settings
from support.private_broker import PrivateBroker
from undertone_device.sensors.crc import ARC, crc16

sys.path.append(str(mp.REPO / "scripts"))

from board_memory import FILES, WIDE_KB
from frames import TELEGRAM


def telegram(energy):
    """The recorded P1 telegram with both registers at ``energy`` Wh."""
    body = re.sub(rb"(1-0:1\.8\.[12])\([\d.]+", b"\\1(%06d.%03d" % divmod(energy, 1000), TELEGRAM)
    body = body[: body.index(b"!") + 1]
    return body + b"%04X\r\n" % crc16(body, ARC, 0)


@pytest.mark.slow
@pytest.mark.waits
@pytest.mark.micropython
@pytest.mark.broker
def test_an_esp32_on_a_dutch_or_belgian_meter(micropython, compiled, mosquitto_binary, tmp_path, free_port):
    [program] = blocks("esp32-p1.md", "python")
    with PrivateBroker(mosquitto_binary, tmp_path, free_port(), "localhost") as broker:
        board = BoardSite(broker, tmp_path, micropython, compiled, 1, measure="counter")
        (tmp_path / "sensor.py").write_text(program, encoding="utf-8")
        (tmp_path / "uart.bin").write_bytes(b"".join(telegram(1000 + 7 * n) for n in range(600)))
        device = json.loads((tmp_path / "device.json").read_text(encoding="utf-8")) | settings("esp32-p1.md")
        # The guide reads every ten seconds in slots of half an hour. Here, a slot takes one second.
        device["source"]["seconds"] = 1
        (tmp_path / "device.json").write_text(json.dumps(device), encoding="utf-8")
        assert board.run(1024 * WIDE_KB[FILES], "3")[-1].endswith("True True")
        assert len(board.slots(3)) >= 3
        board.close()
