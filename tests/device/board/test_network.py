"""device/main.py under MicroPython with TLS on bad networks (slow, silent, or coming and going) feeds its watchdog.

The watchdog of a Pico W restarts the board after 8.3 s without a feed. A board that is restarted in each TLS handshake
would never get through one. The broker and its TLS are real; `support.slow_network` stands for the network.
"""

import json
import re
import sys

import pytest

from support import micropython as mp
from support.board_site import BOARD, BoardSite
from support.private_broker import PrivateBroker
from support.slow_network import SlowNetwork

sys.path.append(str(mp.REPO / "scripts"))

from board_memory import FILES, WIDE_KB

# The longest allowed time without a feed, in milliseconds. The board's steps wait for half a second at most, and a busy
# machine may add some seconds.
LONGEST_STRETCH = 5000


@pytest.fixture
def board(micropython, compiled, mosquitto_binary, tmp_path, free_port):
    """A function that runs a board behind a network with faults until the broker has acknowledged ``count`` reports.

    It returns (the longest time without a feed in ms, how often its Wi-Fi went down, how often it connected).
    """
    with PrivateBroker(mosquitto_binary, tmp_path, free_port(), "localhost") as broker:

        def run(count, *, answer=30000, wifi=0, **faults):
            site = BoardSite(broker, tmp_path, micropython, compiled, 1)
            settings = json.loads((tmp_path / "device.json").read_text(encoding="utf-8"))
            with SlowNetwork(broker.port, radio=tmp_path / "radio", **faults) as network:
                settings["broker"]["port"] = network.port
                (tmp_path / "device.json").write_text(json.dumps(settings), encoding="utf-8")
                arguments = map(str, (count, answer, wifi))
                lines = site.run(1024 * WIDE_KB[FILES], *arguments, program=BOARD / "drive_network.py")
            slots = site.slots(count)
            site.close()
            assert slots == sorted(set(slots))
            stretch, falls = map(int, re.fullmatch(r"stretch (\d+) falls (\d+)", lines[-1]).groups())
            return stretch, falls, network.connections

        yield run


@pytest.mark.long
def test_a_server_of_100_bytes_every_2_s(board):
    """The device completes the slow handshake in one connection, and then reports."""
    stretch, _, connections = board(2, part=100, pause=2, slow=900)
    assert stretch < LONGEST_STRETCH
    assert connections == 1


@pytest.mark.slow
@pytest.mark.long
def test_a_server_that_says_nothing(board):
    """The board gives up the first server after the deadline, and reports to the second one."""
    stretch, _, connections = board(2, answer=12000, silent=1)
    assert stretch < LONGEST_STRETCH
    assert connections == 2


@pytest.mark.slow
@pytest.mark.waits
def test_wifi_that_comes_and_goes(board):
    """The network is so slow that the Wi-Fi may also go down in the middle of a handshake."""
    stretch, falls, _ = board(6, answer=3000, wifi=12, part=300, pause=0.3, slow=1200)
    assert stretch < LONGEST_STRETCH
    assert falls >= 1
