"""Runs device/main.py on the board that is not there.

MODE [PORT]: how many acknowledged reports to wait for, or sleep; the port whose names its modules have.
"""

import os
import sys

# The first: what it finds to be on trial decides whose modules the others get.
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
        """Random numbers before the radio is on would be none on an ESP32."""
        assert "active" in network.log
        return os.urandom(n)


class Sockets:
    """Looks no name up while the radio has no network: it would block for longer than the watchdog waits."""

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
# A board whose campaign does not fit waits for a smaller one.
main.main(lambda: clients[0].counts["acked"] >= int(mode) or "not enough memory" in clients[0].trouble)
# What verifies signatures is dropped again.
assert "undertone_shared.ed25519" not in sys.modules
print(network.log, len(ntptime.calls), ntptime.host, machine.WDT.fed > 5, clients[0].counts["acked"] >= int(mode))
