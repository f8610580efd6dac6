"""A radio that is connected from the third query on, and a cable. `machine.become` offers what a port has."""

STA_IF = 0
log = []
up = False


def hostname(name):
    if len(name) > 32:
        raise ValueError
    log.append("hostname")


class WLAN:
    def __init__(self, interface):
        self._looks = 0

    def active(self, on):
        log.append("active")

    def connect(self, ssid, password):
        log.append("connect " + ssid)

    def isconnected(self):
        global up
        self._looks += 1
        up = self._looks > 2
        return up


class LAN(WLAN):
    def __init__(self):
        self._looks = 0

    def connect(self, ssid, password):
        raise AttributeError("connect")
