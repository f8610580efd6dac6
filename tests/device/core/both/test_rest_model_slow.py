"""The longer search of test_rest_model.py: every sequence of three events, and 400 random ones."""

from rest_model import ACTIONS
from test_rest_model import check_random_sequences, check_short_sequences

RUNS_ON = ("cpython",)


def test_every_short_sequence_keeps_the_rest():
    check_short_sequences(ACTIONS)


def test_long_random_sequences_keep_the_rest_and_still_report():
    check_random_sequences(400)
