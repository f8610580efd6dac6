"""What a mean is compared with, as people write it: another group, an earlier time, another time, or other days."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo

from undertone_aggregator.base.durations import moment_of, seconds_of
from undertone_aggregator.estimate.selection import DAYS_OFF, WORKDAYS, OnDays
from undertone_shared.errors import Invalid

_GROUP, _DAYS, _SPAN = "group:", "days:", ".."
_DAY = 86400
EXPECTED = "group:NAME, a time ago such as 7d, two moments such as 2026-03-02..2026-03-09, or days:days-off"


@dataclass(frozen=True)
class Against:
    """The other side of a comparison: its ``group``, or None for the group of the first side, and its time.

    The time is that of the first side, or ``before`` seconds earlier, or from ``begin`` to before ``end`` (local times
    as text). ``days``: the days of the other side, or None for those of the first side.
    """

    group: str | None = None
    before: int = 0
    begin: str | None = None
    end: str | None = None
    days: OnDays | None = None

    @classmethod
    def parse(cls, name: str, text: str) -> "Against":
        """Parse "group:north", a time ago such as "7d", a span "2026-03-02..2026-03-09", or "days:days-off". Raises
        Invalid.

        ``name`` is what the option is called in the error.
        """
        if text.startswith(_GROUP) and text != _GROUP:
            return cls(group=text.removeprefix(_GROUP))
        if text.startswith(_DAYS):
            return cls(days=OnDays.parse(name, text.removeprefix(_DAYS)))
        begin, between, end = text.partition(_SPAN)
        if between and begin and end:
            for each in (begin, end):
                moment_of(name, each, UTC)
            return cls(begin=begin, end=end)
        try:
            return cls(before=seconds_of(name, text))
        except Invalid:
            raise Invalid(f"{name} is {text!r}, expected {EXPECTED}") from None

    def __str__(self) -> str:
        if self.group is not None:
            return f"{_GROUP}{self.group}"
        if self.days is not None:
            return f"{_DAYS}{self.days}"
        return f"{self.before}s" if self.begin is None else f"{self.begin}{_SPAN}{self.end}"

    def differing(self, groups: Sequence[str]) -> list[str]:
        """Return the groups among ``groups`` that are compared: all except the group of the other side. Raises Invalid
        if none is left.
        """
        others = [group for group in groups if group != self.group]
        if not others:
            raise Invalid(f"against is {self}, expected another group than the one that is compared")
        return others

    def on(self, days: OnDays | None) -> OnDays | None:
        """Return the days of the other side; ``days``: those of the first side.

        Raises Invalid if the other side has days of its own, and the first side has none or the same.
        """
        if self.days is None:
            return days
        if days is None or days == self.days:
            chosen = "all days" if days is None else str(days)
            raise Invalid(
                f"against is {self}, but the selection has {chosen}: select other days on one side, such as {WORKDAYS}"
                f" against {_DAYS}{DAYS_OFF}"
            )
        return self.days

    def span(
        self, first: int, last: int, slot_seconds: int, zone: tzinfo, slots: Callable[[datetime], int]
    ) -> tuple[int, int]:
        """Return the (first slot, last slot) with which the slots ``first`` to ``last`` are compared.

        If ``before`` is a number of whole days, these are days of the clock of ``zone``: a day of 23 or 25 hours counts
        as a day. ``slots``: returns the first slot that starts at or after a moment. Raises Invalid if ``before`` is
        not a whole number of slots.
        """
        if self.begin is not None and self.end is not None:
            begin, end = (moment_of("against", each, zone) for each in (self.begin, self.end))
            return slots(begin), slots(end) - 1
        days, rest = divmod(self.before, _DAY)
        if self.before % slot_seconds:
            raise Invalid(f"against is {self}, expected a whole number of slots of {slot_seconds} s")
        if rest:
            return first - self.before // slot_seconds, last - self.before // slot_seconds

        def earlier(slot: int) -> int:
            moment = datetime.fromtimestamp(slot * slot_seconds, UTC).astimezone(zone) - timedelta(days=days)
            return round(moment.timestamp() / slot_seconds)

        return earlier(first), earlier(last)
