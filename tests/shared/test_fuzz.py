"""Whatever bytes arrive, shared code returns a value or raises Invalid, and nothing else.

Hypothesis draws the bytes. Each drawing is tried in many variants, because most of the time goes into drawing.
"""

import json
import random

import pytest
from frozen import FROZEN, FROZEN_STREAM, STREAM_POLICY, policy
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from undertone_shared import campaign as campaigns
from undertone_shared import report as reports
from undertone_shared.errors import Invalid
from undertone_shared.off_board import intake, issue
from undertone_shared.policy import parse_policy

VARIANTS = 100
many = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])

scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10)
values = scalars | st.lists(scalars, max_size=4) | st.dictionaries(st.text(max_size=8), scalars, max_size=4)


def answer(function, *arguments):
    try:
        return function(*arguments)
    except Invalid:
        return None


def mutations(data, seed):
    """The same bytes with one to four changes: a byte is replaced, bytes are cut out or doubled, or others inserted."""
    rng = random.Random(seed)
    for _ in range(VARIANTS):
        variant = bytearray(data)
        for _ in range(rng.randint(1, 4)):
            i, j = sorted(rng.choices(range(len(variant) + 1), k=2))
            match rng.randrange(4):
                case 0:
                    variant[i : i + 1] = rng.randbytes(1)
                case 1:
                    del variant[i : min(j, i + 8)]
                case 2:
                    variant[i:i] = variant[i : min(j, i + 8)]
                case 3:
                    variant[i:i] = rng.choice([b"-", b"9" * 12, b".5", b"[", b"}", b'"', b"\xff", b"null", b"e9"])
        yield bytes(variant)


def places(fields, path=()):
    """The path of every field, at any depth."""
    for name in fields:
        yield (*path, name)
        if isinstance(fields[name], dict):
            yield from places(fields[name], (*path, name))


def replaced(original, path, value):
    fields = json.loads(original)
    inner = fields
    for name in path[:-1]:
        inner = inner[name]
    inner[path[-1]] = value
    return json.dumps(fields).encode()


@many
@given(st.binary(max_size=60), st.integers())
def test_reports(payload, seed):
    good = reports.pack(reports.STREAM, b"abcdefgh", 7, (1, 2), 9, 3)
    for variant in (payload, b"\x01" + payload, *mutations(good, seed)):
        report = answer(intake.unpack, variant)
        if report is not None:
            assert (
                reports.pack(report.kind, report.fingerprint, report.slot, report.values, report.sequence, report.chain)
                == variant
            )


ORIGINALS = [
    (campaigns.Campaign, FROZEN),
    (campaigns.Campaign, FROZEN_STREAM),
    (parse_policy, policy()),
    (parse_policy, policy(stream=STREAM_POLICY)),
]
NAMES = ["campaign", "stream campaign", "policy", "policy with streams"]


@pytest.mark.slow_but("policy", "policy with streams")
@many
@given(values)
@pytest.mark.parametrize(("parse", "original"), ORIGINALS, ids=NAMES)
def test_any_value_in_any_field(parse, original, value):
    answer(parse, json.dumps(value).encode())
    for path in places(json.loads(original)):
        answer(parse, replaced(original, path, value))


@pytest.mark.slow_but("policy", "policy with streams")
@many
@given(st.integers())
@pytest.mark.parametrize(("parse", "original"), ORIGINALS, ids=NAMES)
def test_broken_json(parse, original, seed):
    for variant in mutations(original, seed):
        answer(parse, variant)


@many
@given(st.binary(max_size=300), st.integers())
def test_messages(data, seed):
    good = issue.pack(campaigns.Campaign(FROZEN), 5)
    for variant in (data, b"UTC2" + data, *mutations(good[:60], seed)):
        answer(campaigns.header, variant)
        answer(campaigns.Campaign, variant[12:])
        answer(parse_policy, variant)
