"""A home's own readings beside the published means of the campaign. The comparison never leaves the home.

`Others` receives the mean of the home's group, which the server publishes, or the mean of all homes if the home has no
group. For this it sends only a subscription. `Comparison` keeps the home's own values and the published means of the
last week of slots, or of the last 1000 slots if a week has more.
"""

import json

from undertone_device.core.slot_value import SlotValue
from undertone_device.mqtt.packets import CONNECTED, DENIED, LOST, MESSAGE
from undertone_shared.checks import check_sample

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from undertone_device.core.ledger import Storage
    from undertone_device.core.protocols import Sample
    from undertone_device.mqtt.protocols import Transport
    from undertone_device.setup.config import DeviceConfig
    from undertone_shared.campaign import Campaign

FILE = "compare"
# The group that every home is in.
EVERYBODY = "all"
_WEEK = 7 * 86400
# The largest number of slots that are kept: they cover a week, or less if slots are short.
_MOST = 1000
# Means are kept as whole thousandths of the unit. A mean is ignored if an end of its interval is this far from 0.
THOUSAND = 1000
_FAR = 10**15
_EVENING_SECONDS = 5 * 3600
# Measures whose values add up over slots.
_ADD_UP = ("sum", "counter", "duration")


def topic_of(prefix: str, campaign: str, group: str = EVERYBODY) -> str:
    """Return the topic of the published mean of a group's homes, smoothed over time."""
    return "%s/%s/aggregate/%s/filtered" % (prefix, campaign, group)


def group_of(config: "DeviceConfig", campaign: str) -> str:
    """Return the group whose mean a home sees.

    In a campaign that a hand-over named, this is everybody, because only the server knows the home's group there.
    """
    return EVERYBODY if campaign in config.successors else config.groups.get(campaign, EVERYBODY)


class Comparison:
    """The home's values and the published means by slot, in ``storage``.

    ``on``: whether published means are received, and the home's own values kept; True until a person switches it off.
    ``group``: the group whose means are kept.
    """

    def __init__(self, storage: "Storage"):
        self._storage = storage
        self.on = True
        self.group = EVERYBODY
        # Slot -> value; slot -> [mean, low, high].
        self._own: dict[int, int] = {}
        self._all: dict[int, list[int]] = {}
        self._open: tuple[str, int, SlotValue] | None = None
        self._whole = False
        self.measure = ""
        self.seconds = 0
        # This number grows with each change, so that a display knows when to draw again.
        self.changes = 0
        self._read()

    def _read(self) -> None:
        try:
            kept = json.loads(self._storage.read(FILE) or b"{}")
            self.on = bool(kept.get("on", True))
            self.group = str(kept.get("group", EVERYBODY))
            self.measure = str(kept.get("measure", ""))
            self.seconds = int(kept.get("seconds", 0))
            self._own = {int(slot): int(value) for slot, value in kept.get("own", [])}
            self._all = {int(slot): [int(each) for each in row] for slot, row in kept.get("all", [])}
        except (ValueError, TypeError, AttributeError):
            # A damaged file is ignored, because nothing else depends on it.
            self._own, self._all = {}, {}

    def _write(self) -> None:
        self.changes += 1
        for kept in (self._own, self._all):
            oldest = max(kept) - max(_WEEK // max(self.seconds, 1), 1) if kept else 0
            for slot in sorted(kept)[:-_MOST] + [slot for slot in kept if slot <= oldest]:
                kept.pop(slot, None)
        kept_now = {
            "on": self.on,
            "group": self.group,
            "measure": self.measure,
            "seconds": self.seconds,
            "own": sorted(self._own.items()),
            "all": sorted(self._all.items()),
        }
        try:
            self._storage.write(FILE, json.dumps(kept_now).encode())
        except OSError:
            # If the disk is full, only this comparison is lost.
            pass

    def switch(self, on: bool) -> None:
        """Switch the comparison on or off; off also deletes what was kept."""
        self.on = on
        if not on:
            self._own, self._all, self._open = {}, {}, None
        self._write()

    # --- the home's own values

    def add(self, campaign: "Campaign | None", sample: "Sample", now: int, ticks: int, modulus: int = 0) -> None:
        """Take a sample at Unix second ``now``; a slot's value is known once the slot is over."""
        if campaign is None or not self.on or not isinstance(sample, int):
            return
        slot = now // campaign.slot_seconds
        self.close(campaign, now, ticks)
        if self._open is None or self._open[0] != campaign.measure:
            # A slot whose beginning was missed has no value.
            self._open, self._whole = (campaign.measure, slot, SlotValue(campaign.measure, modulus)), False
        self._open[2].add(check_sample(sample), ticks)

    def close(self, campaign: "Campaign", now: int, ticks: int) -> None:
        """End the open slot if it is over."""
        slot = now // campaign.slot_seconds
        if self._open is None or self._open[1] == slot:
            return
        measure, before, value = self._open
        closed = value.close(ticks)
        if self._whole and closed is not None:
            self.put(campaign, before, closed)
        self._whole = slot == before + 1
        self._open = (measure, slot, value)

    def put(self, campaign: "Campaign", slot: int, value: int) -> None:
        """Keep the home's value of a slot."""
        if self.on:
            self._begin(campaign)
            self._own[slot] = value
            self._write()

    def _begin(self, campaign: "Campaign") -> None:
        """Forget the stored values if they are of another measure or of slots of another length."""
        if (self.measure, self.seconds) != (campaign.measure, campaign.slot_seconds):
            self.measure, self.seconds = campaign.measure, campaign.slot_seconds
            self._own, self._all = {}, {}

    # --- what is published

    def beside(self, group: str) -> None:
        """Compare with this group from now on, and forget the means of any other group."""
        if group != self.group:
            self.group, self._all = group, {}
            self._write()

    def hear(self, campaign: "Campaign | None", payload: bytes) -> None:
        """Keep a published mean.

        A message that is no valid mean is ignored: a server sent it, and nothing depends on it.
        """
        try:
            fields = json.loads(payload)
            slot, kind = int(fields["slot"]), fields["kind"]
            values = [fields[name] for name in ("estimate", "low", "high")]
            if any(isinstance(each, (str, list, dict)) for each in values):
                return
            row = [int(THOUSAND * each) for each in values]
        except (ValueError, TypeError, KeyError, OverflowError, RuntimeError):
            return
        if campaign is None or not self.on or kind not in ("report", "stream"):
            return
        if not -_FAR < row[1] <= row[0] <= row[2] < _FAR or self._all.get(slot) == row:
            return
        self._begin(campaign)
        self._all[slot] = row
        self._write()

    def summary(self, now: int, evening: int) -> "dict[str, Any] | None":
        """Return the home's and the others' numbers for the newest slot, five hours from ``evening`` on, and a week.

        Each of ``newest``, ``evening``, ``week`` is {start, end, slots, own, mean, low, high} over the slots that have
        both a value of the home and a published mean, or None without such a slot. The last four are whole thousandths
        of the unit: sums if the quantity adds up over slots, else means. The interval of several slots assumes that
        their errors are fully correlated, which gives the widest interval. ``others`` is the newest published mean:
        {start, end, mean, low, high}. Returns None before a mean is known.
        """
        if not self._all or not self.seconds:
            return None
        both = [slot for slot in sorted(self._all) if slot in self._own]
        seconds = self.seconds
        spans = {
            "newest": both[-1:],
            "evening": [slot for slot in both if evening <= slot * seconds < evening + _EVENING_SECONDS],
            "week": [slot for slot in both if slot * seconds >= now - _WEEK],
        }
        newest = max(self._all)
        answer: dict[str, Any] = {name: self._span(slots) for name, slots in spans.items()}
        mean, low, high = self._all[newest]
        answer["others"] = {
            "start": newest * seconds,
            "end": (newest + 1) * seconds,
            "mean": mean,
            "low": low,
            "high": high,
        }
        return answer

    def _span(self, slots: "list[int]") -> "dict[str, Any] | None":
        n = len(slots)
        if not n:
            return None
        share = 1 if self.measure in _ADD_UP else n
        sums = [sum(self._all[slot][i] for slot in slots) // share for i in range(3)]
        return {
            "start": slots[0] * self.seconds,
            "end": (slots[-1] + 1) * self.seconds,
            "slots": n,
            "own": THOUSAND * sum(self._own[slot] for slot in slots) // share,
            "mean": sums[0],
            "low": sums[1],
            "high": sums[2],
        }


class Others:
    """A `Transport` over another one that also hears published means, and gives them to ``comparison``."""

    def __init__(self, transport: "Transport", config: "DeviceConfig", comparison: Comparison):
        self._transport = transport
        self._config = config
        # Topic -> (campaign, group) of the published means that were asked for.
        self._topics: dict[str, tuple[str, str]] = {}
        self.comparison = comparison
        # The campaign that the device takes part in now; the program that runs the device sets it in each round.
        self.campaign: Campaign | None = None
        self._connected = False
        # See `Transport`. This is the same list as the other transport's, and both change it in place.
        self.places = transport.places
        self.configured = transport.configured
        self.oversized = 0
        self.reached = False

    def connect(self) -> None:
        """See `Transport`."""
        self._connected = False
        self._topics = {}
        self.reached = False
        self._transport.connect()

    def subscribe(self, topic: str) -> None:
        """See `Transport`."""
        self._transport.subscribe(topic)

    def publish(self, topic: str, payload: bytes) -> int:
        """See `Transport`."""
        return self._transport.publish(topic, payload)

    def poll(self, milliseconds: int) -> "list[Any]":
        """Return the other transport's events, except those about published means, which the comparison takes."""
        if self._connected and self.comparison.on and not self._topics:
            # A hand-over can have added campaigns since the last connection, so the topics are computed anew.
            config = self._config
            for name in config.campaigns:
                group = group_of(config, name)
                topic = topic_of(config.prefix, name, group)
                self._topics[topic] = (name, group)
                self._transport.subscribe(topic)
        events = []
        heard = self._transport.poll(milliseconds)
        self.oversized = self._transport.oversized
        self.reached = self._transport.reached
        for event in heard:
            kind = event[0]
            if kind == CONNECTED:
                self._connected = True
            elif kind == LOST:
                self._connected = False
            if kind == MESSAGE and event[1] in self._topics:
                campaign, group = self._topics[event[1]]
                if self.campaign is not None and self.campaign.name == campaign:
                    self.comparison.beside(group)
                    self.comparison.hear(self.campaign, bytes(event[2]))
            elif kind != DENIED or event[1] not in self._topics:
                # An older server may refuse the subscription: then there is nothing to compare with.
                events.append(event)
        return events

    def close(self) -> None:
        """See `Transport`."""
        self._connected = False
        self._transport.close()
