"""Privacy cost of a demonstration for its devices, in words, and the time between two reports of a device."""

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

from undertone_aggregator.base.plural import many
from undertone_aggregator.design.budget import shown
from undertone_shared.off_board.intake import unpack
from undertone_simulator.wire.ledger import Key

# A line of mosquitto's log for a report that it received; repeated packets do not match.
_PUBLISH = re.compile(r"(\d+): Received PUBLISH from \S+ \(d0, [^']*'[^']*/([^/']+)/report'")


@dataclass(frozen=True)
class TurnsCost:
    """Cost of a campaign in which devices report every ``stride``-th slot and rest ``window`` seconds.

    ``closest``: least number of seconds between two messages of a device in the broker's own log, or None if no device
    sent two. It may be below the rest: a late message comes closer to the next one than their readings are apart.
    """

    window: int
    stride: int
    closest: int | None


def cost(epsilon: Fraction, per_day: int, readings: int, turns: TurnsCost | None) -> list[str]:
    """Return sentences: the privacy cost of a device after ``readings`` reports, and what this cost means."""
    reading, day, spent = (shown(epsilon * n) for n in (1, per_day, readings))
    if turns is None:
        return [
            f"spent: ε = {reading} per reading (event level), {day} per played day of"
            f" {many(per_day, 'reading')}, {spent} in all for the {many(readings, 'reading')} of a device in this demo",
            meaning(epsilon, per_day),
        ]
    window = turns.window
    closest = turns.closest
    apart = "no device published twice" if closest is None else f"a device's messages are at least {closest} s apart"
    return [
        f"spent: ε = {reading} for all readings in any {window} s: a device reports in one of every {turns.stride}"
        f" slots, and rests in between; {spent} in all for the {many(readings, 'report')} of a device in this demo",
        f"what it means: for somebody who already knows everything else about the household, all that its device ever"
        f" sends shifts the odds of what happened in any {window} s by a factor of at most e^{reading} ="
        f" {math.exp(epsilon):.3g}; for a habit over d such windows, the exponent is d times as large",
        f"the broker's own record: {apart}",
    ]


def meaning(epsilon: Fraction, per_day: int) -> str:
    """Explain in plain words what epsilon per reading means for a household."""
    reading, day = shown(epsilon), shown(epsilon * per_day)
    return (
        f"what it means: the report of one reading shifts the odds between any two of its values by a factor of at"
        f" most e^{reading} = {math.exp(epsilon):.3g}; all reports of a day together shift the odds by at most e^{day}:"
        f" single readings are protected, a habit repeated daily is not"
    )


def published_apart(log: Path) -> dict[str, int]:
    """Return the least number of seconds between two reports of each device in a mosquitto log.

    Repetitions (DUP) are ignored.
    """
    last: dict[str, int] = {}
    closest: dict[str, int] = {}
    with log.open(errors="replace", encoding="utf-8") as lines:
        for line in lines:
            publish = _PUBLISH.match(line)
            if publish is None:
                continue
            second, device = int(publish[1]), publish[2]
            if device in last:
                closest[device] = min(closest.get(device, second - last[device]), second - last[device])
            last[device] = second
    return closest


def reported_apart(reports: Iterable[Key]) -> dict[str, int]:
    """Return a map: device -> the smallest difference between the slots of two of its reports.

    ``reports``: pairs (device, report). Devices with fewer than two reports are left out; copies of one report count
    once.
    """
    slots: dict[str, set[int]] = {}
    for device, report in reports:
        slots.setdefault(device, set()).add(unpack(report).slot)
    return {
        device: min(later - earlier for earlier, later in pairwise(sorted(each)))
        for device, each in slots.items()
        if len(each) > 1
    }
