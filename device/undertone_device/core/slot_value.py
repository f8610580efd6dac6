"""The slot that is being measured, and its value from raw samples, in integers.

No sample is used in two slots, with two exceptions: a counter's last reading in a slot is also the start of the next
slot, and the last state of a duration goes on in the next slot.
"""

from undertone_shared.checks import check_sample

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from undertone_device.core.protocols import Accumulator, Sample
    from undertone_shared.campaign import Campaign

    Finished = tuple[Campaign, int, Sample | None, int]

# Mask for ticks, which are milliseconds modulo 2^30, as MicroPython counts them.
TICKS_MASK = (1 << 30) - 1
_LARGEST = (1 << 30) - 1


class SlotValue:
    """Accumulates one slot's samples by ``measure``, and keeps what the next slot starts from.

    ``measure`` is sum, mean (rounded half up), last, max, duration or counter. Duration: the seconds spent in a state,
    whose samples are 1 or 0 at its changes. Counter: the last reading less the previous slot's last, modulo ``modulus``
    (0: does not wrap). A slot without a reading ends the interval of a counter, and so does a change to shorter slots
    (`OpenSlot.open`). So a value never includes more than its own slot and the slot before, which is not longer.
    """

    def __init__(self, measure: str, modulus: int = 0):
        self.measure = measure
        self.modulus = modulus
        self._base: int | None = None
        self._since: int | None = None
        self._reset()

    def _reset(self) -> None:
        self._count = 0
        self._sum = 0
        self._last = 0
        self._max = -_LARGEST

    def add(self, sample: "Sample", ticks: int) -> None:
        """Take one sample at ``ticks``. Raises Invalid unless it is an integer of 30 bits and sign."""
        sample = check_sample(sample)
        if self.measure == "duration":
            self._advance(ticks)
            self._since = ticks if sample else None
        else:
            self._sum += sample
            self._max = max(self._max, sample)
            self._last = sample
        self._count += 1

    def add_many(self, samples: "Sequence[Sample]", ticks: int) -> None:
        """Take a buffer of samples, which were measured just before ``ticks``, at once. Raises Invalid like ``add``.

        For a duration, the state in the last sample counts from ``ticks`` on.
        """
        # Most boards never use a buffer, so the code is loaded only now.
        from undertone_device.core.buffers import summary

        count, total, largest, last = summary(samples)  # type: ignore[arg-type]
        if not count:
            return
        if self.measure == "duration":
            self.add(last, ticks)
        else:
            self._count += count
            self._sum += total
            self._max = max(self._max, largest)
            self._last = last

    def _advance(self, ticks: int) -> None:
        if self._since is not None:
            self._sum += (ticks - self._since) & TICKS_MASK
            self._since = ticks

    def close(self, ticks: int) -> "int | None":
        """Return the slot's value, and begin the next slot.

        Return None if nothing was sampled and no state of a duration goes on, or if a counter has no reading in the
        slot before.
        """
        measure = self.measure
        value: int | None = None
        if measure == "duration":
            self._advance(ticks)
            if self._count or self._since is not None:
                value = self._sum // 1000
        elif self._count:
            if measure == "sum":
                value = self._sum
            elif measure == "mean":
                value = (2 * self._sum + self._count) // (2 * self._count)
            elif measure == "max":
                value = self._max
            elif measure == "last":
                value = self._last
            else:
                if self._base is not None:
                    value = self._last - self._base
                    if self.modulus:
                        value %= self.modulus
                self._base = self._last
        else:
            self._base = None
        self._reset()
        return value


class OpenSlot:
    """The open slot of the current campaign; ``finished`` is the last whole slot until it is taken.

    A finished slot is (campaign, slot, value, opened): ``opened`` is the uptime, in seconds of the tick counter, from
    which readings may have entered the value. A slot that was entered in its middle, by boot or by a jump of the clock,
    is never finished. ``several`` combines the coordinates' values, if the policy has streams.
    """

    def __init__(self, modulus: int, several: "Callable[[list[SlotValue]], Accumulator] | None"):
        # There are twelve attributes: with thirteen, MicroPython would make a larger dictionary.
        self.finished: Finished | None = None
        self.value: Accumulator | None = None
        self._campaign: Campaign | None = None
        self.modulus = modulus
        self.several = several
        self._dimension = 0
        self._slot = 0
        self._seconds = 0
        self._whole = False
        self._opened = 0
        self._opened_at = 0
        self._opened_before = 0

    def lasts(self, now: int) -> bool:
        """Return True if ``now`` is in the open slot."""
        campaign = self._campaign
        return campaign is not None and now // campaign.slot_seconds == self._slot

    def close(self, ticks: int) -> int:
        """End the open slot, if any, when the counter shows ``ticks``; return the Unix second of its end, or -1."""
        campaign = self._campaign
        if campaign is None or self.value is None:
            return -1
        if (ticks - self._opened_at) & TICKS_MASK > 1000 * campaign.slot_seconds:
            # The program did not run when the slot ended, for example in a suspend; the time after its end is not part
            # of the slot.
            ticks = (self._opened_at + 1000 * campaign.slot_seconds) & TICKS_MASK
        value = self.value.close(ticks)
        if self._whole:
            # A counter's value begins with a reading of the slot before.
            opened = self._opened_before if campaign.measure == "counter" else self._opened
            self.finished = (campaign, self._slot, value, opened)
        self._campaign = None
        return (self._slot + 1) * campaign.slot_seconds

    def open(self, campaign: "Campaign", now: int, end: int, uptime: int, ticks: int) -> None:
        """Open the campaign's slot that contains ``now``, at ``uptime``, when the counter shows ``ticks``.

        ``end``: the Unix second at which the slot before ended, -1 if none was open.
        """
        self._opened_before = self._opened
        self._opened = uptime
        self._opened_at = ticks
        dimension = campaign.rule.dimension
        seconds = campaign.slot_seconds
        self._slot = now // seconds
        self._whole = self._slot * seconds == end
        self._campaign = campaign
        # If the quantity is the same as in the last slot, the new slot continues from that slot's state. After a change
        # to shorter slots a counter does not: its reading in the last slot, from which this slot's value would be
        # counted, may be older than a slot, so it is dropped.
        stale = campaign.measure == "counter" and self._seconds > seconds
        self._seconds = seconds
        if self.value is None or stale or self.value.measure != campaign.measure or self._dimension != dimension:
            values = [SlotValue(campaign.measure, self.modulus) for _ in range(dimension)]
            self.value = self.several(values) if self.several and dimension > 1 else values[0]
            self._dimension = dimension
