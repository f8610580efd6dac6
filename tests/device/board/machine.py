"""A board that is not there: its watchdog, and a clock and memory that survive deep sleep in board.json."""

import json
import sys

from undertone_device import clock

DEEPSLEEP_RESET = 4
PWRON_RESET = 1

_real_time = clock.unix_time


def load():
    try:
        with open("board.json") as file:
            return json.load(file)
    except OSError:
        return {"offset": 0, "memory": "", "cause": PWRON_RESET, "fed": 0}


def save(**changes):
    state = load()
    state.update(changes)
    with open("board.json", "w") as file:
        json.dump(state, file)


def unix_time():
    return _real_time() + load()["offset"]


clock.unix_time = unix_time


class WDT:
    fed = 0

    def __init__(self, timeout):
        if timeout > 8388:
            raise ValueError("timeout exceeds 8388")

    def feed(self):
        WDT.fed += 1


class RTC:
    def memory(self, data=None):
        if data is None:
            return bytes.fromhex(load()["memory"])
        save(memory=data.hex())


def reset_cause():
    return load()["cause"]


def deepsleep(milliseconds):
    print("deepsleep", milliseconds)
    save(offset=load()["offset"] + milliseconds // 1000, cause=DEEPSLEEP_RESET)
    sys.exit(0)
