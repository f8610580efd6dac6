"""Checks the theorem of docs/day-proof.md on the real reporter by enumeration.

The theorem bounds P(o|x) / P(o|x'), where x and x' are W-neighbours: they differ only within an interval as long as the
rest W. Every schedule of nine slots that the theorem allows is tried, with all W-neighbours and all outputs o. The
largest ratio is the certificate of the mechanism, 3/1. With a rest that is one slot shorter, schedules of at most two
reports are tried, and the largest ratio is 9/1. This file tries a rest of 4 slots, and test_day_proof_exhaustive.py
rests of 2, 3 and 4 slots.
"""

from rest_model import SECONDS, TOTAL, Words, one_slot_shorter, resting_policy, stub_campaign
from rig import START, Memory, Ticks

from undertone_device.core.reporter import Reporter
from undertone_shared.off_board import intake, issue

SLOTS = 9
RESTS = (2, 3, 4)
HERE = (4,)
# The 32-bit interpreter frees no memory within a test, so this long test would use up its memory.
RUNS_ON = ("cpython", "micropython")


class Lab:
    """One reporter that lives through stretches of nine slots, each after a whole rest."""

    def __init__(self, rest, mutant):
        self.rest = rest
        self.mutant = mutant
        self.campaign = stub_campaign()
        self.boot()

    def boot(self):
        self.entropy = Words()
        self.ticks = Ticks()
        self.storage = Memory()
        self.now = START - SECONDS
        self.reporter = Reporter("meter-1", resting_policy(self.rest), self.storage, self.entropy, self.ticks)
        if self.mutant is not None:
            self.mutant(self.reporter)
        # The ledger begins here, so a rest passes before the first stretch.
        self.reporter.accept(issue.pack(self.campaign, self.now), self.now)
        self.step()

    def step(self, slots=1):
        self.ticks.now += slots * SECONDS * 1000
        self.now += slots * SECONDS
        return self.reporter.close_slot(self.now)

    def run(self, wanted, readings, words):
        """Return (schedule, symbols) of nine slots in which the reporter may draw only in the ``wanted`` slots."""
        if self.now > self.campaign.end - 30 * SECONDS:
            self.boot()
        # In slots that are not wanted, a pause keeps the reporter from drawing. In a wanted slot the reporter may still
        # refuse to draw, because it rests.
        self.storage.files["pause"] = b"0 4000000000"
        self.step(self.rest // SECONDS + 2)
        self.reporter.accept(issue.pack(self.campaign, self.now), self.now)
        self.step()
        first = self.now // SECONDS
        self.entropy.given = words
        self.entropy.taken = 0
        schedule, symbols = [], []
        for slot in range(SLOTS):
            self.reporter.observe(300 if readings >> slot & 1 else 0, self.now)
            self.storage.files["pause"] = b"0 0" if wanted >> slot & 1 else b"0 4000000000"
            report = self.step()
            if report is not None:
                report = intake.unpack(report)
                assert report.slot == first + slot
                schedule.append(slot)
                symbols.append(report.values[0])
        assert self.entropy.taken == len(schedule)
        return tuple(schedule), tuple(symbols)


def schedules(lab):
    """All sets of slots in which the reporter draws, over all sets of wanted slots."""
    return {lab.run(wanted, 0, ())[0] for wanted in range(1 << SLOTS)}


def neighbours(w):
    """The sets of slots that an interval of ``w`` slots can touch.

    The interval starts at an edge of a slot or between two edges.
    """
    result = set()
    for u in range(-2 * w, 2 * SLOTS + 1):
        result.add(tuple([k for k in range(SLOTS) if 2 * k < u + 2 * w and 2 * k + 2 > u]))
    return result


def law(lab, schedule, readings):
    """How many of the 4^n sequences of random words give each output for these readings, in n drawn slots.

    The schedule must be the same for all sequences.
    """
    wanted = sum([1 << slot for slot in schedule])
    counts = {}
    for index in range(TOTAL ** len(schedule)):
        words = tuple([index // TOTAL**i % TOTAL for i in range(len(schedule))])
        drawn, symbols = lab.run(wanted, readings, words)
        assert drawn == schedule
        counts[symbols] = counts.get(symbols, 0) + 1
    return counts


def worst(rest, w, mutant=None, longest=SLOTS):
    """The largest P(o|x) / P(o|x') as a pair of integers, and the schedules that are allowed.

    Only schedules of at most ``longest`` reports are tried.
    """
    lab = Lab(rest, mutant)
    allowed = schedules(lab)
    intervals = neighbours(w)
    top = (1, 1)
    for schedule in allowed:
        if not 1 <= len(schedule) <= longest:
            continue
        # All readings of the drawn slots are tried, while the readings of the remaining slots are 0. The latter must
        # not matter: if all of them are 1 and those of the drawn slots are 0, the law stays the same.
        n = len(schedule)
        laws = []
        for index in range(1 << n):
            readings = sum([1 << schedule[i] for i in range(n) if index >> i & 1])
            laws.append(law(lab, schedule, readings))
        others = ((1 << SLOTS) - 1) - sum([1 << slot for slot in schedule])
        assert law(lab, schedule, others) == laws[0]
        for index in range(1 << n):
            for other in range(1 << n):
                differ = [schedule[i] for i in range(n) if (index ^ other) >> i & 1]
                if not [touched for touched in intervals if not [slot for slot in differ if slot not in touched]]:
                    continue
                for output in laws[index]:
                    a, b = laws[index][output], laws[other].get(output, 0)
                    assert b > 0
                    if a * top[1] > b * top[0]:
                        top = (a, b)
    return top, allowed


def spaced(apart):
    """All sets of slots of which no two are closer to each other than ``apart``."""
    return {
        tuple([k for k in range(SLOTS) if wanted >> k & 1])
        for wanted in range(1 << SLOTS)
        if not [d for d in range(1, apart) if wanted & wanted >> d]
    }


def check_the_worst_ratio(rests):
    for w in rests:
        (a, b), allowed = worst(w * SECONDS, w)
        assert allowed == spaced(w + 1)
        assert a == 3 * b, (w, a, b)


def check_a_rest_one_slot_shorter(rests):
    for w in rests:
        (a, b), allowed = worst(w * SECONDS, w, one_slot_shorter, 2)
        assert allowed == spaced(w)
        assert a == 9 * b, (w, a, b)


def test_the_worst_ratio_over_exactly_the_schedules_of_the_rule_is_the_certificate():
    check_the_worst_ratio(HERE)


def test_a_rest_one_slot_shorter_gives_its_square():
    check_a_rest_one_slot_shorter(HERE)
