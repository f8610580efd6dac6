"""Stands for a board: its watchdog, and a clock and memory that survive deep sleep in board.json.

`become` replaces the modules machine and network by ones with exactly the names that `port_names` lists for a port.
"""

import json
import sys
import time

import network

DEEPSLEEP_RESET = 4
PWRON_RESET = 1

_real_time = None


def load():
    try:
        with open("board.json", encoding="utf-8") as file:
            return json.load(file)
    except OSError:
        return {"offset": 0, "memory": "", "cause": PWRON_RESET, "fed": 0}


def save(**changes):
    state = load()
    state.update(changes)
    with open("board.json", "w", encoding="utf-8") as file:
        json.dump(state, file)


def unix_time():
    """The real time plus an offset.

    Once a test has set ``now`` in board.json, or after the first deep sleep, only deep sleep moves the clock. So a slow
    machine does not matter.
    """
    state = load()
    return state.get("now") or _real_time() + state["offset"]


def set_time_of(clock):
    """Have the device's clock module read this board's clock."""
    global _real_time
    _real_time = clock.unix_time
    clock.unix_time = unix_time


class WDT:
    """The watchdog. ``stretch`` is the longest time without a feed so far, in milliseconds."""

    fed = 0
    longest = 8388
    stretch = 0
    last = 0

    def __init__(self, id=0, timeout=5000):
        if timeout > self.longest:
            raise ValueError("timeout is too long")
        WDT.last = time.ticks_ms()

    def feed(self):
        WDT.fed += 1
        now = time.ticks_ms()
        WDT.stretch = max(WDT.stretch, time.ticks_diff(now, WDT.last))
        WDT.last = now


class RTC:
    def memory(self, data=None):
        if data is None:
            return bytes.fromhex(load()["memory"])
        save(memory=data.hex())


class UART:
    """A serial line on which each call of ``read`` finds the next bytes of the file uart.bin, 900 at a time."""

    INV_RX = 4

    def __init__(self, number, baudrate, rx, tx, rxbuf, invert):
        self.line = (number, baudrate, rx, tx, rxbuf, invert)
        self._taken = 0

    def read(self):
        with open("uart.bin", "rb") as file:
            file.seek(self._taken)
            data = file.read(900)
        self._taken += len(data)
        return data or None


def reset_cause():
    return load()["cause"]


def reset():
    print("reset")
    sys.exit(0)


def deepsleep(milliseconds):
    if milliseconds > longest_sleep:
        raise ValueError("sleep too long")
    print("deepsleep", milliseconds)
    save(now=unix_time() + milliseconds // 1000, cause=globals().get("DEEPSLEEP_RESET", PWRON_RESET))
    sys.exit(0)


class PlainRTC:
    def datetime(self):
        return (2026, 11, 21, 5, 0, 0, 0, 0)


class Port:
    """``memory``: whether the port has RTC.memory. ``watchdog``, ``sleep``: the longest that are possible, in ms."""

    def __init__(self, memory, watchdog, sleep):
        self.memory = memory
        self.watchdog = watchdog
        self.sleep = sleep


PORTS = {
    "esp32": Port(True, 1 << 30, 1 << 60),
    "esp8266": Port(True, 5000, 1 << 60),
    "rp2": Port(False, 8388, (1 << 32) // 1000 - 1),
    "mimxrt": Port(False, 128000, 1 << 60),
    "stm32": Port(False, 32000, (1 << 17) * 1000),
}
longest_sleep = 1 << 60


class Module:
    """A module that has the attributes that are set, and no others."""


class Unused:
    """A name that the port has and that the board's program must not use."""

    def __init__(self, name):
        self._name = name

    def __call__(self, *_):
        raise NotImplementedError(self._name)


def _module(names, offered):
    made = Module()
    for name in names:
        setattr(made, name, offered[name] if name in offered else Unused(name))
    return made


def become(port):
    """Return (machine, network) of this port; later imports get these two modules."""
    global longest_sleep
    # The stand-in should take little of the board's memory, so the lists of names are unloaded again.
    import port_names

    del sys.modules["port_names"]
    has = PORTS[port]
    if "DEEPSLEEP_RESET" not in port_names.MACHINE[port]:
        del globals()["DEEPSLEEP_RESET"]
        # A port without this name reports the same cause after a deep sleep as after any other boot.
        save(cause=PWRON_RESET)
    if not has.memory:
        globals()["RTC"] = PlainRTC
    WDT.longest = has.watchdog
    longest_sleep = has.sleep
    made = _module(port_names.MACHINE[port], globals()), _module(port_names.NETWORK[port], network.__dict__)
    sys.modules["machine"], sys.modules["network"] = made
    return made
