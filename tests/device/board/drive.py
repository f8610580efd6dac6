"""Runs device/main.py on the board that is not there: MODE is how many acknowledged reports to wait for, or sleep."""

import os
import sys

import machine
import main
import network
import ntptime

from undertone_shared import entropy


class Os:
    def urandom(self, n):
        """Random numbers before the radio is on would be none on an ESP32."""
        assert "active" in network.log
        return os.urandom(n)


entropy.os = Os()

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
main.main(lambda: clients[0].counts["acked"] >= int(mode))
print(network.log, len(ntptime.calls), ntptime.host, machine.WDT.fed > 5, clients[0].counts["acked"])
