"""For the tests of docs/day-proof.md: a reporter with known random words, and mutants of the guard, which enforces
the rest.
"""

from rig import DAY, START, Memory, Ticks, make_campaign, make_policy

from undertone_device.core.ledger import in_ticks
from undertone_device.core.reporter import Reporter
from undertone_shared.errors import Refused
from undertone_shared.mechanism import Hybrid, WindowMechanism
from undertone_shared.off_board import issue
from undertone_shared.scalar import ReportRule

SECONDS = 1800
# A draw of the stub has TOTAL equally likely outcomes. Symbol 1 has probability 3/4 at the upper end of the range, and
# 1/4 at the lower end, so the certificate is 3/1.
TOTAL = 4


def stub():
    """A mechanism of two symbols. Its second part is never chosen."""
    rounding = WindowMechanism(3, 1, 1, 1, 1)
    return Hybrid(0, rounding, WindowMechanism(3, 1, 1, 1, 1, None, 2))


def resting_policy(seconds, **changes):
    return make_policy(cap=[3, 1], rest_seconds=seconds, boots_per_day=1000, reports_per_period=1000, **changes)


def stub_campaign(**changes):
    fields = {"report": ReportRule(0, 300, stub()), "last_slot": (START + 300 * DAY) // SECONDS - 1}
    for name in changes:
        fields[name] = changes[name]
    return make_campaign(**fields)


class Words:
    """Stands for `Entropy`.

    ``given``: the random words for draws of a symbol, in order. All other random words are 0.
    """

    def __init__(self):
        self.given = ()
        self.taken = 0

    def refill(self):
        pass

    def below(self, n):
        if n != TOTAL:
            return 0
        self.taken += 1
        return self.given[self.taken - 1] if self.taken <= len(self.given) else 0


# --- mutants: each breaks one rule of the guard, which enforces the rest


def draw_instead_of_opening(reporter):
    """The rest is measured to the draw, not to the opening of the slot."""
    guard = reporter.guard
    obstacle = guard.obstacle
    guard.obstacle = lambda campaign, slot, now, opened: obstacle(campaign, slot, now, reporter.ledger.uptime)


def free_first_draw(reporter):
    """The first draw after a boot needs no rest."""
    guard = reporter.guard
    rested = guard.rested
    guard.rested = lambda opened: guard._drew_at is None or rested(opened)


def no_ticks(reporter):
    """Only the clock says how long the rest was; the ticks are not asked."""
    reporter.guard.rested = lambda opened: True


def one_slot_shorter(reporter):
    """The rest ends a slot too early, by the clock and by the ticks."""
    reporter.policy.rest_seconds -= SECONDS


def one_report_a_period(reporter):
    """There is no rest, but at most one report in a period as long as the rest."""
    policy = reporter.policy
    policy.period_seconds = policy.rest_seconds
    policy.rest_seconds = 0
    reporter.ledger.sums.limit(1, 0, 0)


class World:
    """The true time, a clock and a storage that may misbehave, and the real reporter.

    ``intervals``: (opened, closed) of every slot that was drawn, in milliseconds of true time.
    """

    def __init__(self, rest, mutant=None, **policy):
        self.rest = rest
        self.fields = policy
        self.mutant = mutant
        self.now = START
        self.ticks = Ticks()
        self.true = 0
        self.storage = Memory()
        self.older = {}
        self.intervals = []
        self.counted = None
        self.campaign = stub_campaign()
        self.boot()

    def boot(self, asleep=None):
        self.ticks.now = 5 if asleep is None else 7
        policy = resting_policy(self.rest, **self.fields)
        self.reporter = Reporter("meter-1", policy, self.storage, Words(), self.ticks, asleep=asleep)
        if self.mutant is not None:
            self.mutant(self.reporter)
        if asleep is None:
            self.counted = self.true
        self._watch()
        self.hear()
        self.look()

    def _watch(self):
        slot = self.reporter._open
        opening, closing = slot.open, slot.close
        spans = {}

        def opened(campaign, now, end, rested, ticks):
            opening(campaign, now, end, rested, ticks)
            spans["opened"] = self.true

        def closed(ticks):
            had = slot.finished
            end = closing(ticks)
            if slot.finished is not had:
                self.finished = (spans["opened"], self.true)
            return end

        slot.open, slot.close = opened, closed

    def hear(self):
        try:
            self.reporter.accept(issue.pack(self.campaign, self.now), self.now)
        except Refused:
            pass

    def look(self):
        """Let the reporter look at the time as its loop does. If it draws, note the interval of the slot."""
        before = dict(self.storage.files)
        if self.reporter.close_slot(self.now) is not None:
            self._note(self.finished)
            self.older = before

    def _note(self, interval):
        if self.intervals:
            gap = interval[0] - self.intervals[-1][1]
            assert gap >= in_ticks(self.rest) * 1000, gap
        self.intervals.append(interval)
        self.counted = self.true

    def pass_time(self, seconds, clock):
        self.ticks.now += seconds * 1000
        self.true += seconds * 1000
        self.now += clock

    # --- what may happen

    def tick(self):
        """A slot passes, and the clock is right."""
        self.pass_time(SECONDS, SECONDS)
        self.look()

    def stretch(self):
        """A rest passes, and the clock stands still."""
        self.pass_time(self.rest, 0)
        self.look()

    def cut(self):
        """The clock moves on by a slot, and no time passes."""
        self.pass_time(0, SECONDS)
        self.look()

    def run(self):
        """The clock moves on by a rest and a slot, no time passes, and the server confirms the time of the clock."""
        self.pass_time(0, self.rest + SECONDS)
        self.hear()
        self.look()

    def back(self):
        """The clock is set back by two slots."""
        self.now -= 2 * SECONDS
        self.look()

    def agree(self):
        """The server confirms the time of the clock."""
        self.hear()

    def reboot(self):
        self.boot()

    def lose(self):
        """The ledger is lost, and the device boots."""
        self.storage.files.pop("ledger", None)
        self.boot()

    def roll_back(self):
        """The ledger from before the last draw is restored, though the report may have been sent."""
        self.storage.files = dict(self.older)
        self.boot()

    def power_loss(self):
        """The power fails after the ledger is written and before the report is sent.

        The report is sent after the boot.
        """
        self.boot()

    def another_epoch(self):
        self.campaign = stub_campaign(epoch=(self.now // SECONDS + 1) * SECONDS, default=len(self.intervals) % 300)
        self.hear()

    def another_campaign(self):
        self.campaign = stub_campaign(name="other", epoch=(self.now // SECONDS + 1) * SECONDS)
        self.hear()

    def sleep(self):
        """Sleep deeply for half a rest, while a counter measures the time.

        If the device then draws, the value is that of the slot before the wake-up.
        """
        self.pass_time(self.rest // 2, self.rest // 2)
        asleep = self.true - self.counted
        self.boot(asleep=asleep)
        if self.reporter.run_once(3, self.now) is not None:
            self._note((self.true - SECONDS * 1000, self.true))


ACTIONS = (
    "tick stretch cut run back agree reboot lose roll_back power_loss another_epoch another_campaign sleep"
).split()
