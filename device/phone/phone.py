"""The program of a phone: the device package over the browser's storage, clock, random numbers and WebSocket.

The program runs under MicroPython's WebAssembly build in a Web Worker. worker.js registers the module ``_phone`` and
calls `call`. Bytes pass between the two as hexadecimal text, because this build copies no bytes; Unix seconds pass as
text, because integers from JavaScript have 32 bits in this build.
"""

import errno
import json
import os
import sys

import _phone

# A browser has no sockets: these modules are imported by the package and never used.
sys.modules["select"] = sys.modules["socket"] = _phone


def _urandom(count: int) -> bytes:
    numbers = _phone.random(count)
    if numbers is None:
        raise OSError(errno.EIO)
    return bytes.fromhex(numbers)


os.urandom = _urandom

from undertone_device.core import handover, pauses, reset  # noqa: E402
from undertone_device.core.ledger import PAUSE, Ledger  # noqa: E402
from undertone_device.core.slot_value import TICKS_MASK, SlotValue  # noqa: E402
from undertone_device.host import consent, others, status  # noqa: E402
from undertone_device.host.others import Comparison, Others  # noqa: E402
from undertone_device.mqtt.client import Platform  # noqa: E402
from undertone_device.mqtt.session_transport import SessionTransport  # noqa: E402
from undertone_device.setup import assembly  # noqa: E402
from undertone_device.setup.config import parse_config  # noqa: E402
from undertone_shared.checks import check_sample  # noqa: E402
from undertone_shared.errors import Invalid  # noqa: E402
from undertone_shared.policy import parse_policy  # noqa: E402

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from undertone_device.core.protocols import Sample
    from undertone_shared.campaign import Campaign
    from undertone_shared.policy import Policy

_ENTRIES = "entries"
_LARGEST_ENTRIES = 200


class JournalStorage:
    """The named byte strings of one sensor in the page's journal, see journal.js."""

    def __init__(self, sensor: str):
        self._folder = "state/" + sensor + "/"

    def read(self, name: str) -> "bytes | None":
        """Return the content last written, None if there is none."""
        content = _phone.read(self._folder + name)
        return None if content is None else bytes.fromhex(content)

    def write(self, name: str, data: "bytes | memoryview") -> None:
        """Write the content durably. Raises OSError, and keeps the old content then."""
        if not _phone.write(self._folder + name, bytes(data).hex()):
            raise OSError(errno.EIO)

    def delete(self, name: str) -> None:
        """Delete the content, if any. Raises OSError."""
        if not _phone.delete(self._folder + name):
            raise OSError(errno.EIO)

    def erase(self) -> None:
        """Remove from the disk what later writes have replaced; if that fails, the journal tries again by itself."""
        _phone.erase()


class SocketStream:
    """The worker's WebSocket as a `ByteStream`: nothing blocks, because events arrive only between two steps."""

    def __init__(self, url: str):
        self.reached = False
        _phone.connect(url)

    def read(self, buffer: bytearray) -> "int | None":
        """Read into ``buffer``: return the number of bytes, 0 at the end of the stream, None if there are none now."""
        part = _phone.take(len(buffer))
        if part is None:
            return None
        data = bytes.fromhex(part)
        buffer[: len(data)] = data
        return len(data)

    def write(self, data: memoryview) -> "int | None":
        """Return the number of bytes taken, None while the socket is not open."""
        count: int | None = _phone.send(bytes(data).hex())
        self.reached = self.reached or count is not None
        return count

    def wait(self, milliseconds: int, writing: bool) -> None:
        """Return at once: the worker calls the next step when something has arrived."""

    def close(self) -> None:
        """Close the socket."""
        _phone.disconnect()


def unix_time() -> int:
    """Return the seconds since 1970-01-01 UTC, by the phone's clock."""
    return int(_phone.seconds())


def ticks() -> int:
    """Return monotonic milliseconds modulo 2^30."""
    return int(_phone.milliseconds()) & TICKS_MASK


def network_ticks() -> int:
    """Return the milliseconds modulo 2^30 by which the connection's timeouts are counted."""
    return int(_phone.network_milliseconds()) & TICKS_MASK


def phone_policy(text: str) -> "Policy":
    """Parse the policy that the server wrote, with three fields set for a phone. Raises Invalid.

    No counter of a phone runs while its page is closed, so periods and rests are measured by the phone's clock. A
    person may open the page as often as they like, and each page's start counts as a boot. Every draw is written at
    once.
    """
    try:
        fields = json.loads(text)
        fields.update({"rest_by": "clock", "boots_per_day": 1000, "write_seconds": 1})
    except (ValueError, AttributeError):
        raise Invalid("the policy is not a JSON object")
    policy = parse_policy(json.dumps(fields).encode())
    if policy.stream and policy.stream.dimension > 1:
        raise Invalid("stream.dimension is %d, expected 1: a phone gives one number" % policy.stream.dimension)
    return policy


class Phone:
    """One device on this phone.

    ``files``: the files that the server gave the device, text by name. ``url``: the WebSocket of the server.
    ``entered``: True if the person enters numbers, which are stored for up to three slots. Otherwise `worker.js`
    supplies the samples.
    """

    def __init__(self, files: "dict[str, str]", url: str, entered: bool):
        self.policy = phone_policy(files["policy.json"])
        if not self.policy.insecure and url[:6] != "wss://":
            raise Invalid("the server's address is %s, expected wss://, which is encrypted" % url)
        config = parse_config(files["device.json"].encode())
        password = files.get(config.broker.password_file or "", "").strip("\r\n")
        if not password:
            raise Invalid(
                "the server gave this phone no password, and the app cannot log in without one: tell whoever runs it"
            )
        self.storage = JournalStorage(self.policy.sensor)
        if self.policy.handover:
            handover.apply(config, self.storage)
        broker = config.broker
        transport = SessionTransport(
            lambda: SocketStream(url),
            network_ticks,
            config.name,
            broker.user,
            password,
            broker.keepalive,
            broker.places,
        )
        self.comparison = Comparison(self.storage)
        self.others = Others(transport, config, self.comparison)
        config.sample_seconds = config.sample_seconds or 1
        self._modulus = config.counter_modulus
        self._capacity = config.outbox
        self._entered = entered
        platform = Platform(unix_time, ticks, lambda milliseconds: None)
        if not entered:
            platform.read = self._sample
        self.client = assembly.make_client(config, self.policy, self.others, platform, storage=self.storage)
        # The newest slot that has begun. The slot before it is reported ``_due`` milliseconds after the tick
        # ``_since``; ``_ready`` is True until that is done.
        self._slot = -1
        self._due = 0
        self._since = 0
        self._ready = False
        # The slot in which old numbers were removed last.
        self._checked = -1

    @property
    def campaign(self) -> "Campaign | None":
        """The current campaign; None if none is accepted."""
        return self.client.reporter.campaign

    def _sample(self, now: int) -> "int | None":
        """Return the sensor's newest sample, None if it has none; the comparison gets the sample, too."""
        sample: int | None = _phone.sample()
        if sample is not None:
            self.comparison.add(self.campaign, sample, now, ticks())
        return sample

    def step(self) -> None:
        """Do one round of the client; it never blocks."""
        self.others.campaign = self.campaign
        if self._entered:
            self.remove_old()
            self._report_last()
            self.client.exchange(0)
        else:
            self.client.step(0)

    def _report_last(self) -> None:
        """Report the slot that ended last, once, with the numbers that were entered in it.

        While the page stays open, this happens up to a twentieth of a slot after the slot's end, at random, so that
        phones do not all report at once.
        """
        reporter = self.client.reporter
        now = unix_time()
        campaign = reporter.accepted.promote(now)
        if campaign is None or not self.client.counts["heard"]:
            return
        slot = now // campaign.slot_seconds
        if slot != self._slot:
            # There is no delay after the page's start, because people open it at different times. There is none either
            # if the page was asleep during the last slot's delay.
            self._due = 0 if self._slot < 0 or self._ready else self.client.jitter(campaign.slot_seconds * 50)
            self._since = ticks()
            self._slot = slot
            self._ready = True
        if not self._ready or (ticks() - self._since) & TICKS_MASK < self._due:
            return
        value = self._value(campaign, slot - 1)
        if isinstance(value, int):
            self.comparison.put(campaign, slot - 1, value)
        reporter.run_once(value, now)
        # Only these two obstacles may pass while the slot lasts; the slot before it can then still be reported.
        self._ready = reporter.paused in ("clock", "rate")

    def _value(self, campaign: "Campaign", slot: int) -> "Sample | None":
        """Return the value of a slot from the numbers entered in it, None if none was entered."""
        seconds = campaign.slot_seconds
        # For a duration, the person enters a number of seconds, and not the changes of a state.
        measure = "last" if campaign.measure == "duration" else campaign.measure
        value = SlotValue(measure, self._modulus)
        result = None
        for wanted in (slot - 1, slot):
            for entry in self.entries():
                if entry[0] // seconds == wanted:
                    value.add(entry[1], 0)
            result = value.close(0)
        return result

    def entries(self) -> "list[list[int]]":
        """Return the numbers that were entered, [Unix second, number] each, oldest first."""
        try:
            return json.loads(self.storage.read(_ENTRIES) or b"[]")  # type: ignore[no-any-return]
        except ValueError:
            return []

    def enter(self, number: int) -> None:
        """Keep a number that the person has entered now. Raises Invalid, OSError."""
        entry = [unix_time(), check_sample(number)]
        self.storage.write(_ENTRIES, json.dumps(self.entries()[1 - _LARGEST_ENTRIES :] + [entry]).encode())

    def remove_old(self) -> None:
        """Remove the numbers that were entered in neither this slot nor the two before, once in each slot.

        A slot is reported during the next one, and a counter's value starts from a reading in the slot before it.
        """
        seconds = self._slot_seconds()
        slot = unix_time() // seconds
        if slot == self._checked:
            return
        self._checked = slot
        entries = self.entries()
        # If the clock was set back, numbers can be of a later slot. They go, too, because they could stay for years.
        kept = [entry for entry in entries if slot - 2 <= entry[0] // seconds <= slot]
        if len(kept) == len(entries):
            return
        try:
            self.storage.write(_ENTRIES, json.dumps(kept).encode())
        except OSError:
            # The disk takes nothing now. The numbers are removed in the next slot.
            return
        self.storage.erase()

    def pause(self, seconds: int) -> None:
        """Pause for ``seconds``, 0 for no end, from the first slot that begins once the policy's rest has passed.

        Raises OSError.
        """
        now = unix_time()
        begun = pauses.begin(now, self._slot_seconds(), self.policy.rest_seconds, False, seconds)
        pauses.write(self.storage, pauses.extend(pauses.read(self.storage, now), begun, now))

    def resume(self) -> None:
        """End the pause with this slot, or later, because a pause lasts at least a slot and at least the policy's rest.

        Raises OSError.
        """
        now = unix_time()
        pause = pauses.end(pauses.read(self.storage, now), now, self._slot_seconds(), self.policy.rest_seconds)
        pauses.write(self.storage, pause)

    def _slot_seconds(self) -> int:
        campaign = self.campaign
        return campaign.slot_seconds if campaign else self.policy.slot_seconds

    def compare(self, on: bool) -> None:
        """Switch the comparison with the others on or off; off also erases its stored numbers from the disk."""
        self.comparison.switch(on)
        if not on:
            self.storage.erase()

    def leave(self) -> None:
        """End the device: forget the campaigns and what waits to be sent; everything spent stays spent. Raises OSError.

        A later device of the same sensor on this phone adds to what is spent, but numbers its reports from 1.
        """
        self.client.transport.close()
        outbox = self.client.reporter.outbox
        while len(outbox):
            outbox.remove_newest()
        self.client.reporter.guard.write()
        for name in (_ENTRIES, PAUSE, handover.FILE, others.FILE):
            self.storage.delete(name)
        reset.forget_campaigns(self.storage, self.policy, unix_time(), self._capacity)
        ledger = Ledger(self.storage, self._capacity)
        ledger.sums.limit(self.policy.reports_per_period, ledger.spent_until, ledger.uptime)
        ledger.sequence = ledger.handover = 0
        ledger.write(ledger.spent_until, 0, 0)

    def describe(self, evening: int = 0) -> "dict[str, Any]":
        """Return the device's status as JSON values; ``evening``: the Unix second of the last 18:00."""
        state = status.describe(self.client, unix_time())
        comparison = self.comparison
        state["compares"] = comparison.on
        state["compared_group"] = None if comparison.group == others.EVERYBODY else comparison.group
        state["compared"] = comparison.summary(unix_time(), evening)
        state["entries"] = self.entries() if self._entered else []
        state["clock_off"] = clock_off(self.client.trouble)
        return state


def clock_off(trouble: str) -> "int | None":
    """Return how many seconds the phone's clock is ahead, by the times in ``trouble``; None if it has none."""
    start, middle = "campaign refused: it was issued at ", ", and this device's clock says "
    if trouble[: len(start)] != start or middle not in trouble:
        return None
    issued_at, here = trouble[len(start) :].split(middle)
    return int(here.split()[0]) - int(issued_at)


def describe_offer(offer: "dict[str, Any]", words: "dict[str, Any]") -> "dict[str, Any]":
    """Return what a person reads of an offer, see `undertone_device.host.consent`. Raises Invalid."""
    consent.offered(offer.get("policy"), offer.get("operator"), offer.get("about"))
    return describe_policy(json.dumps(offer["policy"]), words)


def describe_policy(text: str, words: "dict[str, Any]") -> "dict[str, Any]":
    """Return what a person reads of the policy that the phone has stored. Raises Invalid."""
    return consent.consent(phone_policy(text), words)


phone: "Phone | None" = None


def _device() -> Phone:
    if phone is None:
        raise Invalid("this phone does not take part now")
    return phone


def _start(files: "dict[str, str]", url: str, entered: bool) -> "dict[str, Any]":
    global phone
    phone = Phone(files, url, entered)
    return phone.describe()


def _leave() -> "dict[str, Any]":
    global phone
    state = _device().describe()
    _device().leave()
    phone = None
    return state


_ACTIONS: "dict[str, Callable[..., Any]]" = {
    "describe_offer": describe_offer,
    "describe_policy": describe_policy,
    "same_policy": consent.same_policy,
    "start": _start,
    "step": lambda: _device().step(),
    "enter": lambda number: _device().enter(number),
    "pause": lambda seconds: _device().pause(seconds),
    "resume": lambda: _device().resume(),
    "leave": _leave,
    "describe": lambda evening: _device().describe(evening),
    "compare": lambda on: _device().compare(on),
}


def call(action: str, arguments: str) -> str:
    """Call an action with a JSON list; return {"result": ...} or {"error": sentence} as JSON. worker.js calls this."""
    try:
        return json.dumps({"result": _ACTIONS[action](*json.loads(arguments))})
    except (Invalid, OSError) as error:
        return json.dumps({"error": str(error)})
