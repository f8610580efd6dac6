"""The tests of `test_rest_model.py` in MicroPython with words of 32 bits, where they take longest."""

from test_rest_model import (
    test_every_mutant_is_caught,
    test_every_short_sequence_keeps_the_rest,
    test_long_random_sequences_keep_the_rest_and_still_report,
    test_the_search_finds_the_mutants_by_itself,
)

RUNS_ON = ("micropython32",)
__all__ = [
    "test_every_mutant_is_caught",
    "test_every_short_sequence_keeps_the_rest",
    "test_long_random_sequences_keep_the_rest_and_still_report",
    "test_the_search_finds_the_mutants_by_itself",
]
