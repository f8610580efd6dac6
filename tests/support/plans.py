"""A small plan of each kind."""

from pathlib import Path

from undertone_aggregator.settings.config import parse_config

_HEAD = """
[broker]
[store]
[campaign]
name = "test"
sensor = "load"
unit = "Wh"
bound = 10000
cycle = 6
report_slots = 12
"""
PLAN = parse_config(
    _HEAD
    + """
epsilon = 2
rounds = [6, 6]
epoch_slots = 6
cohort_share = 0.1
mechanism = "hybrid"
""",
    Path("."),
).campaign
STREAM = parse_config(
    _HEAD
    + """
epsilon = 8
collect = "stream"

[stream]
theta = 2000
reports = 12
dimension = 2
""",
    Path("."),
).stream
