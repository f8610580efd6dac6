"""Between two slots that the real reporter draws, at least 31/32 of the rest passes in true time, whatever happens.

The events are slots that pass, reboots, steps of the clock, slots that are too long or short, epochs, two campaigns,
lost and restored ledgers, a power failure between write and send, and deep sleep with a counter that measures the time.
After the first draw, every sequence of two events is tried, and long random ones from a fixed seed.
test_rest_model_slow.py tries every sequence of three, and more random ones. test_rest_model_32_bits_slow.py runs these
tests with words of 32 bits. The same search finds each mutant of rest_model.py, which breaks one rule of the guard.
"""

from rest_model import (
    ACTIONS,
    SECONDS,
    World,
    draw_instead_of_opening,
    free_first_draw,
    no_ticks,
    one_report_a_period,
    one_slot_shorter,
)

RUNS_ON = ("cpython", "micropython", "float32")
REST = 4 * SECONDS


class Choices:
    """Random numbers from a seed, the same under every interpreter."""

    def __init__(self, seed):
        self.state = seed

    def below(self, n):
        self.state = (self.state * 1103515245 + 12345) & 0x3FFFFFFF
        return (self.state >> 12) % n


def drawn_once(mutant=None):
    world = World(REST, mutant)
    for _ in range(12):
        if world.intervals:
            return world
        world.tick()
    raise AssertionError("nothing was drawn")


def play(actions, mutant=None):
    world = drawn_once(mutant)
    for action in actions:
        getattr(world, action)()
    return len(world.intervals)


def violated(actions, mutant):
    try:
        play(actions, mutant)
    except AssertionError:
        return True
    return False


def walks(count, length, seed):
    for number in range(count):
        choices = Choices(seed + number)
        # Most events are honest slots, which let the device draw.
        yield [ACTIONS[choices.below(len(ACTIONS))] if choices.below(3) == 0 else "tick" for _ in range(length)]


def check_short_sequences(thirds):
    for first in ACTIONS:
        for second in ACTIONS:
            for third in thirds:
                play((first, second, third, "tick", "tick"))


def check_random_sequences(count):
    drawn = 0
    for actions in walks(count, 80, 1):
        drawn += play(actions)
    assert drawn > 2 * count


def test_every_short_sequence_keeps_the_rest():
    check_short_sequences(("tick",))


def test_long_random_sequences_keep_the_rest_and_still_report():
    check_random_sequences(20)


def test_every_mutant_is_caught():
    searches = {
        "opening": (draw_instead_of_opening, ["run", "cut", "stretch", "cut"]),
        "first": (free_first_draw, ["reboot", "run", "tick", "tick"]),
        "ticks": (no_ticks, ["run", "tick", "tick"]),
        "shorter": (one_slot_shorter, ["tick"] * 6),
        "period": (one_report_a_period, ["tick"] * 6),
    }
    for name in searches:
        mutant, trace = searches[name]
        assert violated(trace, mutant), name
        assert not violated(trace, None), name


def test_the_search_finds_the_mutants_by_itself():
    for mutant in (draw_instead_of_opening, free_first_draw, no_ticks, one_slot_shorter, one_report_a_period):
        assert [1 for actions in walks(30, 60, 7) if violated(actions, mutant)], mutant
