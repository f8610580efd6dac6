"""Runs device/main.py on a stand-in for a board.

MODE is how many acknowledged reports to wait for, or "sleep". PORT, if given, is the MicroPython port whose names the
modules have.
"""

import os
import sys

# main is imported first. If main finds code on trial, the other imports come from that code.
import main  # isort: skip
import machine
import network
import ntptime

from undertone_device.mqtt import socket_connection
from undertone_device.setup import clock
from undertone_shared import entropy

machine.set_time_of(clock)
main.machine, main.network = machine.become(sys.argv[2] if len(sys.argv) > 2 else "esp32")


class Os:
    def urandom(self, n):
        """An ESP32 has no real random numbers before its radio is on, so reading them earlier fails."""
        assert "active" in network.log
        return os.urandom(n)


class Sockets:
    """Fails if a name is looked up while the radio has no network.

    On a board, such a look-up would block for longer than the watchdog waits.
    """

    looked_up = 0

    def __getattr__(self, name):
        return getattr(sockets, name)

    def getaddrinfo(self, *arguments):
        assert network.up
        Sockets.looked_up += 1
        return sockets.getaddrinfo(*arguments)


entropy.os = Os()
sockets = socket_connection.socket
socket_connection.socket = Sockets()

mode = sys.argv[1]
if mode == "sleep":
    main.DEEP_SLEEP = True
    main.main()
clients = []
make = main.make_client


def kept(*arguments):
    clients.append(make(*arguments))
    return clients[0]


main.make_client = kept
# A board on which a campaign does not fit would wait for a smaller campaign, so this program ends.
main.main(lambda: clients[0].counts["acked"] >= int(mode) or "not enough memory" in clients[0].trouble)
# The module that verifies signatures was unloaded after its use.
assert "undertone_shared.ed25519" not in sys.modules
print(network.log, len(ntptime.calls), ntptime.host, machine.WDT.fed > 5, clients[0].counts["acked"] >= int(mode))
