"""A board's program: copy it to / as main.py, beside device.json, policy.json, ca.crt and your sensor.py.

Wi-Fi first, because the ESP32 has true random numbers only while its radio is on; then the clock by NTP, because TLS
and slots need it; then the client, under a watchdog. sensor.py has one function, ``read()``: one sample, an integer in
the campaign's unit; with DEEP_SLEEP the value of the slot that has just ended.
"""

# ruff: noqa: E402

import gc

# Before anything is loaded: a heap that is collected often stays in one piece.
gc.threshold(4096)

import os
import sys

# Where code may lie: as flashed, and as an update puts it.
FOLDERS = ("lib", "lib2")


def choose_code():
    """Put the folder of the code to run first; True while it is on trial (see `undertone_device.board.update`).

    The file says which folder is good, which one to run, and for how many more boots that may be another one.
    """
    for name in ("code", "code.new"):
        try:
            with open(name) as file:
                good, folder, boots = file.read().split()
        except (OSError, ValueError):
            continue
        if good not in FOLDERS:
            continue
        if folder != good:
            # What cannot be read is no boot that is left, and no folder to try.
            left = int(boots) - 1 if boots.isdigit() and folder in FOLDERS else -1
            folder = folder if left >= 0 else good
            with open("code.new", "w") as file:
                file.write("%s %s %d" % (good, folder, max(left, 0)))
            os.rename("code.new", "code")
        sys.path.insert(0, folder)
        return folder != good
    return False


ON_TRIAL = choose_code()

import machine
import network
import ntptime

try:
    from undertone_device import unload
    from undertone_device.core.slot_value import TICKS_MASK
    from undertone_device.setup import clock
    from undertone_shared.report import LENGTH
except Exception:
    if not ON_TRIAL:
        raise
    machine.reset()

# Between reports the board sleeps, if True: for slots of minutes, with a policy that allows it (see device/README.md).
DEEP_SLEEP = False
STEP_MILLISECONDS = 500
WIFI_MILLISECONDS = 30000
AWAKE_MILLISECONDS = 60000
# Code on trial that has not reported by then is tried once less.
TRIAL_MILLISECONDS = 6 * 3600 * 1000
UNKNOWN_SLEEP_SECONDS = 600
SHORT_SLEEP_SECONDS = 3600
# The longest that the port allows: opening TLS must fit in.
WATCHDOG_MILLISECONDS = (120000, 32000, 8000)
CONNECT_MILLISECONDS = 3500
# Acknowledged reports that the memory of the clock remembers through a sleep: 336 bytes with two times, where even an
# ESP8266 has 492. Without them the next wake, whose ledger was written before the PUBACK, would send them again.
REMEMBERED = 20
VERIFIER = "undertone_shared.ed25519"
STARTED = clock.ticks()


def read_settings():
    """device.json; the code that reads it is dropped again: with it, a heap of 64 KB would be too small."""
    from undertone_device.setup.config import check_board, read_config

    try:
        os.stat("device.json")
    except OSError:
        receive_settings()
    settings = read_config("device.json")
    check_board(settings)
    del check_board, read_config
    unload("undertone_device.setup.config")
    gc.collect()
    return settings


def receive_settings():
    """A board that was flashed and nothing else: its files come over the serial line, then it starts anew."""
    from undertone_device.board import receive
    from undertone_device.setup.storage import FileStorage

    if receive.wait(sys.stdin, FileStorage(".").write, print):
        machine.reset()


def start_watchdog():
    """The board's watchdog at its longest, or None."""
    for milliseconds in WATCHDOG_MILLISECONDS:
        try:
            return machine.WDT(timeout=milliseconds)
        except (AttributeError, TypeError, ValueError, OSError):
            continue
    return None


def start_network(config):
    """The radio, on from now; on boards without one the cable."""
    if hasattr(network, "hostname"):
        network.hostname(config.name)
    interface = network.WLAN(network.STA_IF) if hasattr(network, "WLAN") else network.LAN()
    interface.active(True)
    return interface


def elapsed(since):
    """Milliseconds."""
    return (clock.ticks() - since) & TICKS_MASK


class Link:
    """Keeps the network connected; ``check`` is called in every round. ``credentials``: None for a cable."""

    def __init__(self, interface, credentials):
        self._interface = interface
        self._credentials = credentials
        self._asked = None

    def check(self):
        """True if connected; asks for a connection, again every half a minute."""
        if self._interface.isconnected():
            return True
        if self._credentials and (self._asked is None or elapsed(self._asked) > WIFI_MILLISECONDS):
            self._asked = clock.ticks()
            try:
                self._interface.connect(self._credentials["ssid"], self._credentials.get("password"))
            except OSError:
                pass
        return False


def set_clock(host):
    """NTP; raises OSError."""
    ntptime.host = host
    ntptime.settime()


def make_client(config, alive, read, asleep=None, acknowledged=None):
    """The client; after the radio is on, for its random numbers. ``read``: `sensor.read`."""
    # Not at the top: a wrong device.json is told before memory is spent, and this code is for the start alone.
    from undertone_device.setup import assembly

    ntp = config.ntp
    policy = assembly.read_policy(config)
    transport = assembly.board_transport(config, policy, clock.ticks, CONNECT_MILLISECONDS, alive)
    client = assembly.make_client(
        config,
        policy,
        transport,
        clock.unix_time,
        clock.ticks,
        clock.sleep_ms,
        None if DEEP_SLEEP else lambda now: read(),
        lambda: set_clock(ntp),
        acknowledged=acknowledged,
        alive=alive,
        asleep=asleep,
    )
    del assembly
    for name in ("assembly", "tls_context"):
        unload("undertone_device.setup." + name)
    gc.collect()
    return client


def judge(client):
    """Keep the code on trial once the broker has acknowledged a report; start anew when it takes too long."""
    global ON_TRIAL
    if ON_TRIAL and client.counts["acked"]:
        from undertone_device.board import update

        update.keep()
        ON_TRIAL = False
        unload("undertone_device.board.update")
    elif ON_TRIAL and elapsed(STARTED) > TRIAL_MILLISECONDS:
        machine.reset()


def run_loop(config, alive, read, stopped):
    """For boards on mains power."""
    link = Link(start_network(config), config.wifi)
    client = make_client(config, alive, read)
    said = ""
    while not stopped():
        # Without a network the client goes on: slots are closed, and the outbox keeps their reports. It looks no name
        # up, which would block for longer than some watchdogs wait.
        client.reachable = link.check()
        client.step(STEP_MILLISECONDS)
        judge(client)
        if VERIFIER in sys.modules:
            # It has verified a new campaign's signature, and is not needed until the next one.
            unload(VERIFIER)
        word = client.trouble or client.reporter.paused or ("online" if client.online else "offline")
        if word != said:
            said = word
            print("undertone:", word)
    client.finish(2000)


def slept(memory, now):
    """Milliseconds from the last draw or boot to now, by the clock that ran on through the sleep; None after a boot.

    ``memory`` holds that clock's seconds when the board fell asleep, and the milliseconds since the draw by then.
    """
    # Some ports do not tell a wake from a boot.
    cause = getattr(machine, "DEEPSLEEP_RESET", None)
    if cause is None or machine.reset_cause() != cause or len(memory) < 8:
        return None
    seconds = now - int.from_bytes(memory[:4], "big")
    if not 0 <= seconds < 1000000:
        return None
    return min(seconds * 1000 + int.from_bytes(memory[4:8], "big"), TICKS_MASK)


def run_once(config, alive, read):
    """For boards on a battery: one report, then sleep until the next slot has ended. Does not return on a board."""
    started = clock.ticks()
    memory = getattr(machine.RTC(), "memory", None)
    remembered = b"" if memory is None else memory()
    # Before NTP moves the clock that ran on through the sleep.
    asleep = slept(remembered, clock.unix_time())
    link = Link(start_network(config), config.wifi)
    while not link.check() and elapsed(started) < WIFI_MILLISECONDS:
        alive()
        clock.sleep_ms(100)
    acknowledged = []
    client = make_client(config, alive, read, asleep, acknowledged.append)
    for i in range(8, len(remembered), LENGTH):
        client.reporter.acked(remembered[i : i + LENGTH])
    report = client.wake(read, AWAKE_MILLISECONDS)
    judge(client)
    now = clock.unix_time()
    if memory is not None:
        # Never more than has passed: the time since this wake's draw counts as none.
        since = 0 if report is not None else (asleep or 0) + elapsed(started)
        times = now.to_bytes(4, "big") + min(since, TICKS_MASK).to_bytes(4, "big")
        memory(times + b"".join(acknowledged[-REMEMBERED:]))
    campaign = client.reporter.campaign
    seconds = UNKNOWN_SLEEP_SECONDS
    if campaign is not None:
        # Not at the slot's edge, where all boards would wake at once; two draws must be 0.9 slots apart.
        slot = campaign.slot_seconds
        seconds = slot - now % slot + client.jitter(slot // 20)
    print("undertone: sleeping for", seconds, "s;", client.reporter.paused or client.trouble or "reported")
    try:
        machine.deepsleep(seconds * 1000)
    except ValueError:
        # Longer than this port's timer: it wakes, finds the slot reported, and sleeps on.
        machine.deepsleep(SHORT_SLEEP_SECONDS * 1000)


def main(stopped=lambda: False):
    """Start as the constants above say."""
    config = read_settings()
    # Only now: a board that waits for its files has none yet.
    import sensor

    watchdog = start_watchdog()
    alive = (lambda: None) if watchdog is None else watchdog.feed
    if DEEP_SLEEP:
        run_once(config, alive, sensor.read)
    else:
        run_loop(config, alive, sensor.read, stopped)


if __name__ == "__main__":
    try:
        main()
    except Exception:
        if not ON_TRIAL:
            raise
        machine.reset()
