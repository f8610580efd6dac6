"""Random lives of the real reporter, and what must hold for every window of time: see `Life`.

Slot length, measure, price (epsilon of a report), epoch and campaign change between draws. Clocks are wrong, alone or
together with the server. Households pause; devices reboot and sleep. A life depends on its seed alone, under every
interpreter.
"""

from rig import DAY, START, Memory, Ticks, hybrid, make_campaign, make_entropy, make_policy, square_wave

from undertone_device.core import pauses
from undertone_device.core.ledger import in_ticks
from undertone_device.core.reporter import Reporter
from undertone_device.core.units import epsilon_units
from undertone_shared.errors import Refused
from undertone_shared.off_board import intake, issue
from undertone_shared.scalar import Cohort, ReportRule

SLOTS = (60, 120, 300, 600)
# Certificates of mechanisms.
PRICES = ((2, 1), (1001, 1000))
# The longest period of a cap. By default, a policy's period is 24 hours, but lives are shorter.
HOUR = 3600
STEPS = 60


class Choices:
    """Random numbers from a seed, the same under every interpreter."""

    def __init__(self, seed):
        self.state = (seed * 2654435761 + 1013904223) & 0x3FFFFFFF

    def below(self, n):
        self.state = (self.state * 1103515245 + 12345) & 0x3FFFFFFF
        return (self.state >> 12) % n

    def of(self, values):
        return values[self.below(len(values))]


# --- mutants: each has one defect


def base_of_any_age(reporter):
    """When slots become shorter, a counter's value may still begin with a reading from a long slot before."""
    slot = reporter._open
    opening = slot.open

    def opened(campaign, now, end, uptime, ticks):
        slot._seconds = 0
        opening(campaign, now, end, uptime, ticks)

    slot.open = opened


def cap_by_the_campaign(reporter):
    """The cap is not checked if a period has at most as many slots of the present campaign as the cap allows draws."""
    guard, policy, sums = reporter.guard, reporter.policy, reporter.ledger.sums
    obstacle, permits = guard.obstacle, sums.permits
    current = []

    def permitted(start, uptime, seconds, ticks):
        every = policy.reports_per_period * current[0].slot_seconds >= policy.period_seconds
        return permits(start, uptime, 0 if every else policy.period_seconds, ticks)

    def asked(campaign, slot, now, opened):
        current[:] = [campaign]
        return obstacle(campaign, slot, now, opened)

    guard.obstacle, sums.permits = asked, permitted


def draw_ahead(reporter):
    """A slot may be drawn before it has ended, and what was spent ahead of time stays spent."""
    guard = reporter.guard
    obstacle = guard.obstacle
    guard._return = lambda now: None
    guard.obstacle = lambda campaign, slot, now, opened: obstacle(
        campaign, slot, max(now, (slot + 1) * campaign.slot_seconds), opened
    )


class Draw:
    """One draw.

    ``began`` and ``ended``: the true interval that its value covers, in ms. ``label`` and ``seconds``: when its slot
    begins and how long it lasts. ``units``: its price. ``moment``: the true time of the draw, in ms.
    """

    def __init__(self, began, ended, label, seconds, units, moment):
        self.began = began
        self.ended = ended
        self.label = label
        self.seconds = seconds
        self.units = units
        self.moment = moment


class Life:
    """One life of a device. ``broken``: the names of the promises that were broken in it.

    W is the policy's rest, k its cap of draws in a period P, and an interval is the time that a drawn value covers. The
    promises are:

    rest      Between the end of an interval and the next one, W passes by an honest clock, else 31/32 W by true time.
    twice     No moment is in two intervals.
    cap       By an honest clock, at most k drawn slots start within P. If the policy counts by ticks, at most k draws
              happen within 31/32 P of true time.
    pause     While clocks are honest, no interval touches the household's pause.
    ahead     No slot is drawn before it has ended.
    silence   Soon after the server has confirmed an honest clock, ``spent_until`` is no further ahead of it than a day
              and the time between two writes.
    day       The household is never shown less than what was drawn in any 24 hours.
    """

    def __init__(self, seed, claims=None, mutant=None):
        self.dice = dice = Choices(seed)
        self.claims = claims
        self.mutant = mutant
        self.broken = []
        self.honest = dice.below(2) == 0
        self.rest = dice.of((0, 0, 240, 900))
        self.period = dice.of((HOUR, 1200, 600))
        self.cap = dice.of((1, 2, 5, 60, 60))
        self.by = dice.of(("ticks", "clock")) if self.honest else "ticks"
        self.fields = {
            "rest_seconds": self.rest,
            "rest_by": self.by,
            "period_seconds": self.period,
            "reports_per_period": self.cap,
            "slot_seconds": 60,
            "measures": ["sum", "counter"],
            "boots_per_day": 1000,
            "write_seconds": dice.of((1, 60, 300)),
            "epoch_seconds": 1,
        }
        self.storage = Memory()
        self.entropy = make_entropy()
        self.ticks = Ticks()
        self.ticks.now = dice.below(1 << 30)
        self.true = 0
        self.now = START - 60
        self.error = 0
        self.drawn_at = None
        # The end of the last interval whose readings were drawn.
        self.told = None
        self.draws = []
        self.shown = []
        self.pause = (0, 0)
        self.last = 0
        self.price = {}
        self.campaign = None
        self.boot()
        self.epoch()

    # --- the device

    def boot(self, asleep=None):
        policy = make_policy(**self.fields)
        self.reporter = Reporter("meter-1", policy, self.storage, self.entropy, self.ticks, asleep=asleep)
        if self.mutant is not None:
            self.mutant(self.reporter)
        self._watch()
        if self.campaign is not None:
            self.hear()
        self.look()

    def _watch(self):
        """Note the true interval of every slot that is closed, and each draw."""
        reporter = self.reporter
        slot = reporter._open
        opening, closing, release = slot.open, slot.close, reporter._release
        spans = {"opened": self.true, "span": None}

        def opened(campaign, now, end, at, ticks):
            spans["opened"] = self.true
            opening(campaign, now, end, at, ticks)

        def closed(ticks):
            had = slot.finished
            end = closing(ticks)
            if slot.finished is not had:
                spans["span"] = (spans["opened"], self.true, self.last)
            return end

        def released(campaign, number, value):
            report = release(campaign, number, value)
            if report is not None and self.waking is None:
                began, ended, last = spans["span"]
                if campaign.measure == "counter":
                    # The readings count seconds of true time. The value of a slot without two readings is the default.
                    began, ended = ((last - value) * 1000, last * 1000) if value else (ended, ended)
                self.note(report, campaign, began, ended)
            return report

        self.waking = None
        slot.open, slot.close, reporter._release = opened, closed, released

    def hear(self):
        try:
            self.reporter.accept(issue.pack(self.campaign, self.now), self.now)
        except Refused:
            return False
        self.look()
        return True

    def look(self):
        self.reporter.close_slot(self.now)
        ahead = self.reporter.ledger.spent_until - self.now
        if self.error or ahead <= DAY + self.fields["write_seconds"]:
            self.silent_since = None
        elif self.heard and self.silent_since is None:
            self.silent_since = self.true
        elif self.heard and self.true - self.silent_since > 4 * SLOTS[-1] * 1000:
            # By now, a whole slot has ended without being drawn.
            self.fail("silence")

    silent_since: "int | None" = None
    heard = False

    def fail(self, word):
        if word not in self.broken:
            self.broken.append(word)

    def note(self, report, campaign, began, ended):
        report = intake.unpack(report)
        seconds = campaign.slot_seconds
        units = self.price[campaign.fingerprint]
        draw = Draw(began, ended, report.slot * seconds, seconds, units, self.true)
        if draw.label + seconds > self.now:
            self.fail("ahead")
        if self.told is not None and ended > began:
            gap = began - self.told
            if gap < 0:
                self.fail("twice")
            if gap < (self.rest if self.honest else in_ticks(self.rest)) * 1000:
                self.fail("rest")
        if self.honest and ended > began:
            start, until = self.pause
            if self.second(began) < until and start < self.second(ended):
                self.fail("pause")
        if ended > began:
            self.told = ended
        self.draws.append(draw)
        self.drawn_at = self.true
        if len(self.draws) > self.cap:
            first = self.draws[-1 - self.cap]
            if self.honest and draw.label - first.label < self.period:
                self.fail("cap")
            if self.by == "ticks" and draw.moment - first.moment < (in_ticks(self.period) - 2) * 1000:
                self.fail("cap")

    def second(self, true):
        """The second that an honest clock shows at a true time, which is in milliseconds."""
        return START - 60 + true // 1000

    # --- what may happen

    def pass_time(self, seconds, clock=None):
        self.true += seconds * 1000
        self.ticks.now += seconds * 1000
        self.now += seconds if clock is None else clock
        self.heard = False

    def live(self, seconds):
        """Let ``seconds`` pass, with readings in some minutes and none in others."""
        for _ in range(seconds // 60):
            reads = self.dice.below(2) == 0
            for _ in range(3):
                self.pass_time(20)
                self.look()
                if reads and self.reporter.campaign is not None:
                    # The reading is the second of true time.
                    self.last = self.true // 1000
                    self.reporter.observe(self.last, self.now)

    def slot(self):
        """Let a slot or two pass with an honest clock."""
        self.live(self.campaign.slot_seconds * (1 + self.dice.below(2)))
        if self.dice.below(4) == 0:
            self.hear()
            self.heard = self.error == 0

    def epoch(self):
        """Begin another epoch of the same or of a following campaign, with another slot length, measure or price."""
        dice = self.dice
        seconds = dice.of(SLOTS)
        a, b = dice.of(PRICES)
        first = self.now // seconds + 1
        name = dice.of(("load", "load", "load", "other"))
        length = dice.of((6, 100)) if name == "other" else 1000000
        campaign = make_campaign(
            name=name,
            measure=dice.of(("sum", "counter", "counter")),
            slot_seconds=seconds,
            cycle=1,
            epoch=first * seconds,
            last_slot=first + min(length, DAY // seconds * 300),
            cohort=Cohort(square_wave(a, b)),
            report=ReportRule(0, 300, hybrid(a, b)),
        )
        self.price[campaign.fingerprint] = epsilon_units(a, b)
        before, self.campaign = self.campaign, campaign
        if not self.hear() and before is not None:
            self.campaign = before

    def reboot(self):
        self.boot()

    def sleep(self):
        """Sleep deeply while a counter measures the time, and report the value of the slot that ended last."""
        reporter = self.reporter
        if not self.honest or self.drawn_at is None or reporter.campaign is None:
            return
        self.pass_time(self.dice.of((60, 300, 900)))
        self.boot((self.true - self.drawn_at) if self.drawn_at is not None else None)
        campaign = self.reporter.campaign
        if campaign is None or campaign.measure == "counter":
            return
        seconds = campaign.slot_seconds
        self.waking = True
        report = self.reporter.run_once(3, self.now)
        self.waking = None
        if report is not None:
            ended = self.true - (self.now % seconds) * 1000
            self.note(report, self.reporter.campaign, ended - seconds * 1000, ended)

    def household(self):
        """Begin a pause, or end one."""
        policy = self.reporter.policy
        # The household need not know the slots of the campaign, so those of the policy are used.
        seconds = policy.slot_seconds
        if self.dice.below(3) == 0 and self.pause[1] > self.now:
            # What was left out of reports stays out. Only the future changes.
            pause = pauses.end(self.pause, self.now, seconds, policy.rest_seconds)
            self.storage.files["pause"] = b"%d %d" % pause
            self.pause = (self.pause[0], max(pause[1], self.now)) if pause[1] else (0, 0)
            return
        if self.pause[1] > self.now:
            return
        hours = self.dice.of((300, 1200, 3600))
        self.pause = pauses.begin(self.now, seconds, policy.rest_seconds, False, hours)
        self.storage.files["pause"] = b"%d %d" % self.pause

    def lie(self):
        """The clock alone is wrong by minutes or days, for some slots. Then it is right, and the server confirms it."""
        if self.honest:
            return
        ahead = self.dice.of((-300, 60, 900, 2 * DAY, 20 * DAY, 90 * DAY))
        self.error += ahead
        self.pass_time(self.dice.of((0, 60)), ahead)
        self.look()
        self.live(self.campaign.slot_seconds * (1 + self.dice.below(3)))
        if self.dice.below(2) == 0:
            self.hear()
            self.live(self.campaign.slot_seconds * 2)
        self.error -= ahead
        self.now -= ahead
        self.look()
        self.hear()
        self.heard = self.error == 0
        self.look()

    def freeze(self):
        """Time passes while the clock stands still, or the clock moves while no time passes."""
        if self.honest:
            return
        seconds = self.dice.of((60, 900))
        if self.dice.below(2):
            self.error -= seconds
            self.pass_time(seconds, 0)
        else:
            self.error += seconds
            self.pass_time(0, seconds)
        self.hear()
        self.look()

    def disk(self):
        self.storage.broken = not self.storage.broken

    def run(self):
        actions = (self.slot, self.epoch, self.epoch, self.epoch, self.reboot, self.sleep, self.household, self.lie)
        actions += (self.freeze, self.disk)
        for _ in range(STEPS):
            if self.dice.below(2):
                self.slot()
            else:
                self.dice.of(actions)()
            if self.storage.broken and self.dice.below(2):
                self.storage.broken = False
            if self.dice.below(8) == 0 and self.claims is not None:
                self.shown.append(self.claims(self.reporter, self.now))
        if self.shown and self.honest and min(self.shown) < self.worst_day():
            self.fail("day")
        return self

    def worst_day(self):
        """Return the largest epsilon of any 24 hours [u, u + 24 h): the sum over draws whose intervals touch it."""
        worst = 0
        for first in self.draws:
            end = first.ended + DAY * 1000
            worst = max(worst, sum([d.units for d in self.draws if d.ended >= first.ended and d.began < end]))
        return worst / (1 << 20)
