"""Runs device/main.py where the network is bad.

Prints the longest time without a feed of the watchdog, in milliseconds, and how often the Wi-Fi went down. The
arguments are COUNT ANSWER WIFI: how many acknowledged reports to wait for; the deadline of a connection in
milliseconds; after how many calls of `isconnected` the Wi-Fi goes down or up again (0 if it stays up).
"""

import os
import sys

import machine
import main
import network

from undertone_device.mqtt import session_transport
from undertone_device.setup import clock

machine.set_time_of(clock)
main.machine, main.network = machine.become("rp2")
count, answer, wifi = map(int, sys.argv[1:4])
session_transport.ANSWER_MILLISECONDS = answer
looks = 0
falls = 0


def isconnected(self):
    """Return the radio's state, and write it to the file ``radio``, which the network outside reads."""
    global looks, falls
    looks += 1
    up = looks > 2 and (not wifi or looks // wifi % 2 == 0)
    if network.up and not up:
        falls += 1
    network.up = up
    with open("radio.new", "w", encoding="utf-8") as file:
        file.write("up" if up else "down")
    os.rename("radio.new", "radio")
    return up


network.WLAN.isconnected = isconnected
clients = []
make = main.make_client


def kept(*arguments):
    clients.append(make(*arguments))
    return clients[0]


main.make_client = kept
main.main(lambda: clients[0].counts["acked"] >= count)
print("stretch", machine.WDT.stretch, "falls", falls)
