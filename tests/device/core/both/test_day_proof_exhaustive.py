"""The enumeration of test_day_proof.py for every rest."""

from test_day_proof import RESTS, check_a_rest_one_slot_shorter, check_the_worst_ratio

# As in test_day_proof.py.
RUNS_ON = ("cpython", "micropython")


def test_the_worst_ratio_over_exactly_the_schedules_of_the_rule_is_the_certificate():
    check_the_worst_ratio(RESTS)


def test_a_rest_one_slot_shorter_gives_its_square():
    check_a_rest_one_slot_shorter(RESTS)
