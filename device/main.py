"""The program of a board: copy it to / as main.py, beside device.json, policy.json, ca.crt and your sensor.py.

A watchdog starts first, then Wi-Fi: the ESP32 has true random numbers only while its radio is on. The client starts
last; it sets the clock by NTP before anything else, because TLS and slots need it.

sensor.py has one function, ``read()``, which returns one sample (an integer in the campaign's unit), several quantities
(a tuple), or a buffer of samples (bytes, a list, an array, a row of ulab). With DEEP_SLEEP it returns the value, or all
samples, of the slot that has just ended.
"""

# ruff: noqa: E402

import gc

# The garbage collector's threshold is set before any other import, because frequent collections keep the heap in one
# piece.
gc.threshold(4096)

import os
import sys

# Folders of the device's code: flashing fills the first; an update fills the one that is not in use.
FOLDERS = ("lib", "lib2")


def choose_code():
    """Choose the folder whose code runs, and put it at the front of sys.path.

    Return True if that code is on trial (`undertone_device.board.update`).

    The file ``code`` names the good folder, the folder to run, and the number of boots that may still try the latter.
    Without this file sys.path stays as it is, and the code in the folder lib runs.
    """
    for name in ("code", "code.new"):
        try:
            with open(name, encoding="utf-8") as file:
                good, folder, boots = file.read().split()
        except (OSError, ValueError):
            continue
        if good not in FOLDERS:
            continue
        if folder != good:
            # If the number of boots or the folder to try is not valid, the good folder is used.
            left = int(boots) - 1 if boots.isdigit() and folder in FOLDERS else -1
            folder = folder if left >= 0 else good
            with open("code.new", "w", encoding="utf-8") as file:
                file.write("%s %s %d" % (good, folder, max(left, 0)))
            os.rename("code.new", "code")
        sys.path.insert(0, folder)
        return folder != good
    return False


def say_too_small():
    """Print that the heap is too small for the code. Frozen code needs less heap than code in files."""
    heap = (gc.mem_free() + gc.mem_alloc()) // 1024
    print("undertone: the heap of %d KB is too small: freeze the code into the firmware (docs/boards.md)" % heap)


ON_TRIAL = choose_code()

import machine
import network
import ntptime

try:
    from undertone_device import unload
    from undertone_device.core.slot_value import TICKS_MASK
    from undertone_device.setup import clock
    from undertone_shared.report import LENGTH
except Exception as error:
    if ON_TRIAL:
        machine.reset()
    if isinstance(error, MemoryError):
        say_too_small()
    raise

# If True, the board sleeps between reports. That suits slots of minutes; the policy must allow it (device/README.md).
DEEP_SLEEP = False
STEP_MILLISECONDS = 500
WIFI_MILLISECONDS = 30000
AWAKE_MILLISECONDS = 60000
# If code on trial has not reported after this time, the board restarts, and the restart uses up one of the trial boots.
TRIAL_MILLISECONDS = 6 * 3600 * 1000
UNKNOWN_SLEEP_SECONDS = 600
SHORT_SLEEP_SECONDS = 3600
# Watchdog timeouts in milliseconds, the longest that the ports allow.
WATCHDOG_MILLISECONDS = (120000, 32000, 8000)
# Deadline for connecting to one address, shorter than every watchdog's timeout.
CONNECT_MILLISECONDS = 3500
# Number of acknowledged reports that are stored in the clock's memory during a sleep. With two timestamps of 4 bytes
# each, 20 reports take 488 bytes; the smallest such memory, an ESP8266's, has 492. Without this record the next wake
# would send the reports again, because the ledger was written before the PUBACK.
REMEMBERED = 20
VERIFIER = "undertone_shared.ed25519"
STARTED = clock.ticks()


def read_settings():
    """Return the settings in device.json; without this file, wait for the board's first files on the serial line.

    The code that reads the file is unloaded again, because a heap of 64 KB has no room for it beside the client.
    """
    from undertone_device.setup.config import check, read_config

    try:
        os.stat("device.json")
    except OSError:
        receive_settings()
    settings = read_config("device.json")
    check(settings)
    del check, read_config
    unload("undertone_device.setup.config")
    gc.collect()
    return settings


def receive_settings():
    """Receive a board's first files over the serial line, then restart. Only a board without device.json needs this."""
    from undertone_device.board import receive
    from undertone_device.setup.storage import FileStorage

    if receive.wait(sys.stdin, FileStorage(".").write, print):
        machine.reset()


def start_watchdog():
    """Start the watchdog with the longest possible timeout; return None if the board has no watchdog."""
    for milliseconds in WATCHDOG_MILLISECONDS:
        try:
            return machine.WDT(timeout=milliseconds)
        except (AttributeError, TypeError, ValueError, OSError):
            continue
    return None


def start_network(config):
    """Switch the radio on, or on boards without one the cable interface; return the interface."""
    if hasattr(network, "hostname"):
        network.hostname(config.name)
    interface = network.WLAN(network.STA_IF) if hasattr(network, "WLAN") else network.LAN()
    interface.active(True)
    return interface


def elapsed(since):
    """Return the milliseconds since the tick count ``since``."""
    return (clock.ticks() - since) & TICKS_MASK


class Link:
    """Connection of a board to Wi-Fi or a cable; ``check`` restores it. ``credentials``: None for a cable."""

    def __init__(self, interface, credentials):
        self._interface = interface
        self._credentials = credentials
        self._asked = None

    def check(self):
        """Return True if connected; otherwise ask for a connection, again every half minute."""
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
    """Set the clock by NTP. Raises OSError."""
    ntptime.host = host
    ntptime.settime()


def make_client(config, alive, read, asleep=None, acknowledged=None):
    """Return the client. The radio must be on before, because random numbers need it. ``read``: `sensor.read`."""
    # The import is here, so that a wrong device.json is reported before memory is used, and so that the imported code
    # can be unloaded after the start.
    from undertone_device.mqtt.client import Platform
    from undertone_device.setup import assembly

    ntp = config.ntp
    policy = assembly.read_policy(config)
    transport = assembly.board_transport(config, policy, clock.ticks, CONNECT_MILLISECONDS, alive)
    platform = Platform(clock.unix_time, clock.ticks, clock.sleep_ms)
    platform.read = None if DEEP_SLEEP else lambda now: read()
    platform.set_clock = lambda: set_clock(ntp)
    platform.acknowledged = acknowledged
    platform.alive = alive
    client = assembly.make_client(config, policy, transport, platform, asleep)
    del assembly
    for name in ("undertone_device.setup.assembly", "undertone_device.setup.tls_context"):
        unload(name)
    # The policy has been read, so the code that reads it is unloaded.
    unload("undertone_shared.policy_fields")
    gc.collect()
    return client


def judge(client):
    """Keep the code on trial once the broker has acknowledged a report; restart when that takes too long."""
    global ON_TRIAL
    if ON_TRIAL and client.counts["acked"]:
        from undertone_device.board import update

        update.keep()
        ON_TRIAL = False
        unload("undertone_device.board.update")
    elif ON_TRIAL and elapsed(STARTED) > TRIAL_MILLISECONDS:
        machine.reset()


def run_loop(config, alive, read, stopped):
    """Run a board on mains power, until ``stopped()`` is True."""
    link = Link(start_network(config), config.wifi)
    client = make_client(config, alive, read)
    printed = ""
    while not stopped():
        # The client also runs without a network: slots are closed, and the outbox stores their reports. Without a
        # network it looks up no names, because that would block for longer than some watchdogs allow.
        client.reachable = link.check()
        client.step(STEP_MILLISECONDS)
        judge(client)
        if VERIFIER in sys.modules:
            # The verifier was loaded for a new campaign's signature, and is not needed until the next campaign.
            unload(VERIFIER)
        word = client.trouble or client.reporter.paused or ("online" if client.online else "offline")
        if word != printed:
            printed = word
            print("undertone:", word)
    client.finish(2000)


def slept(memory, now):
    """Return the milliseconds from the last draw or boot to now, by the clock that runs during sleep.

    Return None if the board did not wake from a sleep, or if that cannot be known. ``memory`` contains that clock's
    seconds when the board fell asleep, and the milliseconds since the draw at that time.
    """
    # Some ports cannot distinguish a wake from a boot.
    cause = getattr(machine, "DEEPSLEEP_RESET", None)
    if cause is None or machine.reset_cause() != cause or len(memory) < 8:
        return None
    seconds = now - int.from_bytes(memory[:4], "big")
    if not 0 <= seconds < 1000000:
        return None
    return min(seconds * 1000 + int.from_bytes(memory[4:8], "big"), TICKS_MASK)


def run_once(config, alive, read):
    """Run a board on a battery: report the last slot, then sleep until this one has ended. Never returns on a board."""
    started = clock.ticks()
    memory = getattr(machine.RTC(), "memory", None)
    remembered = b"" if memory is None else memory()
    # The length of the sleep is read before NTP changes the clock that ran during the sleep.
    asleep = slept(remembered, clock.unix_time())
    link = Link(start_network(config), config.wifi)
    while not link.check() and elapsed(started) < WIFI_MILLISECONDS:
        alive()
        clock.sleep_ms(100)
    acknowledged = []
    client = make_client(config, alive, read, asleep, acknowledged.append)
    for i in range(8, len(remembered), LENGTH):
        client.reporter.acked(remembered[i : i + LENGTH])
    client.reachable = link.check()
    report = client.wake(read, AWAKE_MILLISECONDS)
    judge(client)
    now = clock.unix_time()
    if memory is not None:
        # Milliseconds since the last draw are stored. They must never be more than have really passed, so zero is
        # stored if this wake drew a report.
        since = 0 if report is not None else (asleep or 0) + elapsed(started)
        times = now.to_bytes(4, "big") + min(since, TICKS_MASK).to_bytes(4, "big")
        memory(times + b"".join(acknowledged[-REMEMBERED:]))
    campaign = client.reporter.campaign
    seconds = UNKNOWN_SLEEP_SECONDS
    if campaign is not None:
        # The board wakes up to a twentieth of a slot after the slot's end, at random, because all boards would
        # otherwise wake at once. No board may wait longer, because two draws must be 0.9 slots apart.
        slot = campaign.slot_seconds
        seconds = slot - now % slot + client.jitter(slot // 20)
    print("undertone: sleeping for", seconds, "s;", client.reporter.paused or client.trouble or "reported")
    try:
        machine.deepsleep(seconds * 1000)
    except ValueError:
        # The sleep is longer than this port's timer allows: the board wakes after an hour, finds the slot reported, and
        # sleeps again.
        machine.deepsleep(SHORT_SLEEP_SECONDS * 1000)


def main(stopped=lambda: False):
    """Start in the mode that the constants above choose. If the heap is too small, print a sentence and end."""
    try:
        start(stopped)
    except MemoryError:
        if ON_TRIAL:
            raise
        say_too_small()


def start(stopped):
    """Read the settings, start the watchdog, and run `run_once` or `run_loop`."""
    config = read_settings()
    # sensor.py is imported only now, because a board that waits for its files does not have it yet.
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
