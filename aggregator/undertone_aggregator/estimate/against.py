"""What a mean is compared with, as people write it: another group, the time some days before, or another time."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo

from undertone_aggregator.base.durations import moment_of, seconds_of
from undertone_shared.errors import Invalid

_GROUP, _SPAN = "group:", ".."
_DAY = 86400


@dataclass(frozen=True)
class Against:
    """The other side of a comparison: its ``group``, or None for the group of the first side, and its time.

    The time is that of the first side, or ``before`` seconds earlier, or from ``begin`` to before ``end`` (local times
    as text).
    """

    group: str | None = None
    before: int = 0
    begin: str | None = None
    end: str | None = None

    @classmethod
    def parse(cls, name: str, text: str) -> "Against":
        """Parse "group:north", a time ago such as "7d", or a span "2026-03-02..2026-03-09". Raises Invalid.

        ``name`` is what the option is called in the error.
        """
        if text.startswith(_GROUP) and text != _GROUP:
            return cls(group=text.removeprefix(_GROUP))
        begin, between, end = text.partition(_SPAN)
        if between and begin and end:
            for each in (begin, end):
                moment_of(name, each, UTC)
            return cls(begin=begin, end=end)
        try:
            return cls(before=seconds_of(name, text))
        except Invalid:
            expected = "group:NAME, a time ago such as 7d, or two moments such as 2026-03-02..2026-03-09"
            raise Invalid(f"{name} is {text!r}, expected {expected}") from None

    def __str__(self) -> str:
        if self.group is not None:
            return f"{_GROUP}{self.group}"
        return f"{self.before}s" if self.begin is None else f"{self.begin}{_SPAN}{self.end}"

    def differing(self, groups: Sequence[str]) -> list[str]:
        """Return the groups among ``groups`` that are compared: all except the group of the other side. Raises Invalid
        if none is left.
        """
        others = [group for group in groups if group != self.group]
        if not others:
            raise Invalid(f"against is {self}, expected another group than the one that is compared")
        return others

    def span(
        self, first: int, last: int, slot_seconds: int, zone: tzinfo, slots: Callable[[datetime], int]
    ) -> tuple[int, int]:
        """Return the (first slot, last slot) with which the slots ``first`` to ``last`` are compared.

        A time of days before is counted in days of the clock of ``zone``: a day of 23 or 25 hours counts as a day.
        ``slots``: returns the first slot that starts at or after a moment. Raises Invalid for a time that is not a
        whole number of slots.
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
