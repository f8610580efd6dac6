"""Finds the broker for the tests, which `make tools` or the system installed."""

import os
import shutil

from support.micropython import REPO

MISSING = "no mosquitto here: run `make tools`, or install mosquitto and its clients"
PLACES = ("/usr/sbin", "/usr/local/sbin", "/opt/homebrew/sbin", str(REPO / ".tools/bin"))


def find_mosquitto(name: str = "mosquitto") -> str | None:
    """The path of mosquitto or of one of its programs (mosquitto_sub, mosquitto_pub, mosquitto_passwd), or None."""
    if name == "mosquitto" and (named := os.environ.get("UNDERTONE_MOSQUITTO")):
        return named
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), *PLACES])
    return shutil.which(name, path=path)
