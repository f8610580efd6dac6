"""A server lies in any field of its offer and of the policy that it sends.

The stored policy is never weaker than what was shown. The phone's program uses the same functions: see
`tests/device/phone/test_program.py`.
"""

import copy
import importlib
import itertools
import json
import math
import os
import random
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from support import integration_parts
from support.factory import policy_of
from undertone_device.host.consent import fingerprint
from undertone_device.host.words import read_words
from undertone_shared.errors import Invalid
from undertone_shared.policy import parse_policy
from undertone_shared.policy_fields import default_fields

participation = importlib.import_module(f"{integration_parts.PACKAGE}.participation")
links = importlib.import_module(f"{integration_parts.PACKAGE}.links")

UNIT = 1 << 20
DAY = 86400
STREAM = {"rho": 5_000_000, "period_seconds": DAY, "lifetime": 0}
POLICY = policy_of(
    insecure=True, cap=[2718, 1000], unit="Wh", slot_seconds=1800, reports_per_period=1, rest_seconds=DAY,
    lifetime=30 * UNIT, until=1_830_038_400, signers=["ab" * 32], handover=True,
)  # fmt: skip
POLICY["agreed"] = fingerprint(parse_policy(json.dumps(POLICY).encode()), "The town", "How loud is our street?")
DEVICE = {
    "name": "meter-1",
    "broker": {"host": "127.0.0.1", "port": 1883, "password_file": "password"},
    "campaigns": ["load"],
    "policy": "policy.json",
    "state": "state",
}
# An offer with further fields that a server may send. The home does not show the sentence in `guarantee`.
OFFER = {
    "operator": "The town",
    "campaign": "load",
    "about": "How loud is our street?",
    "policy": POLICY,
    "guarantee": {"reading_epsilon": "1", "day_epsilon": "1", "life_epsilon": "30", "sentence_life": "At most 30."},
    "measures": {"sensor": "energy", "measure": "sum", "unit": "Wh", "slot_seconds": 1800, "text": "x"},
    "reports": {"per_day": 1, "until": "2027-01-01T00:00:00Z"},
}
VALUES: list[Any] = [
    None, 0, 1, 2, -1, 10**6, 1 << 40, True, False, "", "x", "kWh", [], {}, [2981, 1], [1, 1], ["sum"], ["counter"],
    ["sum", "counter"], [1, 1 << 29], STREAM, {"rho": 1, "period_seconds": DAY}, "00" * 16, 1.5, "clock",
]  # fmt: skip
# Places where a server may lie: (part of the answer, field).
PLACES = (
    [("offer", name) for name in OFFER]
    + [("guarantee", name) for name in OFFER["guarantee"]]  # type: ignore[attr-defined]
    + [("measures", name) for name in OFFER["measures"]]  # type: ignore[attr-defined]
    + [("reports", name) for name in OFFER["reports"]]  # type: ignore[attr-defined]
    + [(part, name) for part in ("shown", "sent", "both") for name in default_fields()]
)


class Answers:
    """The answers of a server: an offer, and the policy that it sends after the person has agreed."""

    def __init__(self) -> None:
        self.offer: dict[str, Any] = copy.deepcopy(OFFER)
        self.policy: dict[str, Any] = copy.deepcopy(POLICY)

    def lie(self, place: tuple[str, str], value: Any) -> None:
        part, name = place
        if part in ("shown", "both") and isinstance(self.offer["policy"], dict):
            self.offer["policy"][name] = value
        if part in ("sent", "both"):
            self.policy[name] = value
        if part == "offer":
            self.offer[name] = value
        elif part in self.offer and isinstance(self.offer[part], dict):
            self.offer[part][name] = value

    def agree_anew(self) -> None:
        """Give both policies the fingerprint that fits them, as a careful liar would."""
        for fields in (self.offer["policy"], self.policy):
            try:
                plain = parse_policy(json.dumps({**fields, "agreed": ""}).encode())
                fields["agreed"] = fingerprint(plain, self.offer["operator"], self.offer["about"] or "")
            except (Invalid, TypeError, AttributeError):
                pass


@pytest.fixture
def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    # The tests write tens of thousands of files, which need not be synced to the disk.
    monkeypatch.setattr(os, "fsync", lambda file: None)
    return tmp_path / "house"


def outcome(answers: Answers, folder: Path) -> str:
    """Join as a home does; return "not shown", "refused" or "stored". Check a stored policy against what was shown."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    try:
        shown = participation.shown(answers.offer, "en")
    except Invalid:
        return "not shown"
    link = links.Link.parse("http://127.0.0.1:8444/join#ABCD-EFGH-IJKL-MNOP-QRST-UVWX-YZ")
    joined = participation.Joined(link, "0" * 64, answers.offer)
    files = {"device.json": json.dumps(DEVICE), "policy.json": json.dumps(answers.policy), "password": "secret"}
    try:
        participation.store_files(folder, files, joined)
    except Invalid:
        assert list(folder.iterdir()) == []
        return "refused"
    check(shown, json.loads((folder / "policy.json").read_text(encoding="utf-8")), answers.offer)
    return "stored"


def check(shown: dict[str, Any], policy: dict[str, Any], offer: dict[str, Any]) -> None:
    """Check what was shown against the stored policy, by the test's own arithmetic."""
    found = re.search(r"one number: (.+); for any 24 hours: (.+); for life: ([^(]+?)( \(δ.*)?\. The", shown["expert"])
    assert found is not None
    reading, day, life = (
        0.0 if text == "none allowed" else math.inf if text == "no limit" else float(text.replace(",", ""))
        for text in found.groups()[:3]
    )
    fields = {**default_fields(), **policy}
    epsilon = math.log(fields["cap"][0] / fields["cap"][1])
    slot, rest = fields["slot_seconds"], fields["rest_seconds"]
    reach = slot if set(fields["measures"]) != {"counter"} else 2 * slot
    apart = math.ceil((DAY + reach) / (reach + rest)) if rest else math.ceil(DAY / slot) + 1
    periods, part = divmod(DAY, fields["period_seconds"])
    capped = fields["reports_per_period"] * periods + min(fields["reports_per_period"], math.ceil(part / slot)) + 1
    most = min(apart, capped)
    bound = fields["lifetime"] / UNIT or math.inf
    in_a_day, ever = min(most * epsilon, bound), bound if epsilon else 0.0
    stream = fields["stream"] or None
    if stream is not None:
        rho = stream["rho"] / UNIT * (math.ceil(DAY / stream["period_seconds"]) + 1)
        charged = stream.get("lifetime", 0) / UNIT or math.inf
        in_a_day += of_rho(min(rho, charged))
        ever += of_rho(charged)
    assert (epsilon, in_a_day, ever) <= (reading + 1e-9, day + 1e-9, life + 1e-9)
    assert epsilon <= reading + 1e-9
    assert in_a_day <= day + 1e-9
    assert ever <= life + 1e-9
    words, rows = read_words("en")["consent"], {key: text for key, _, text in shown["rows"]}
    assert all(words["measures"][measure] in rows["measured"] for measure in fields["measures"])
    assert (f"in {fields['unit']}:" if fields["unit"] else "not fixed") in rows["measured"]
    assert ("at the latest" in rows["until"]) == bool(fields["until"])
    if fields["agreed"]:
        parsed = parse_policy(json.dumps(policy).encode())
        assert fields["agreed"] == fingerprint(parsed, offer["operator"], offer["about"] or "")


def of_rho(rho: float) -> float:
    return rho + 2 * math.sqrt(rho * 20 * math.log(2))


def test_an_honest_server_is_believed(house: Path) -> None:
    assert outcome(Answers(), house) == "stored"


@pytest.mark.slow
def test_one_lie_and_two_lies_about_any_fields(house: Path) -> None:
    counts: dict[str, int] = {}
    chosen = random.Random(42)
    cases = [((place, value),) for place in PLACES for value in VALUES]
    cases += [  # type: ignore[misc]
        ((first, chosen.choice(VALUES)), (second, chosen.choice(VALUES)))
        for first, second in itertools.combinations(PLACES, 2)
    ]
    for number, lies in enumerate(cases):
        answers = Answers()
        for place, value in lies:
            answers.lie(place, copy.deepcopy(value))
        if number % 2:
            answers.agree_anew()
        word = outcome(answers, house)
        counts[word] = counts.get(word, 0) + 1
    assert set(counts) == {"not shown", "refused", "stored"}


@pytest.mark.slow
def test_ten_thousand_random_answers(house: Path) -> None:
    counts: dict[str, int] = {}
    chosen = random.Random(7)
    for _ in range(10_000):
        answers = Answers()
        for _ in range(chosen.randint(1, 6)):
            answers.lie(chosen.choice(PLACES), copy.deepcopy(chosen.choice(VALUES)))
        if chosen.random() < 0.5:
            answers.policy = copy.deepcopy(answers.offer["policy"])
        if chosen.random() < 0.7:
            answers.agree_anew()
        word = outcome(answers, house)
        counts[word] = counts.get(word, 0) + 1
    assert counts["stored"] > 500, counts


def test_the_lies_that_were_believed_once(house: Path) -> None:
    """A policy without limits is refused if it is not the one that was shown.

    If it was shown, the person reads that there is no limit, and does not read the server's sentence "At most 30."
    """
    answers = Answers()
    for name, value in (("cap", [2981, 1]), ("rest_seconds", 0), ("lifetime", 0), ("stream", STREAM)):
        answers.lie(("sent", name), value)
    assert outcome(answers, house) == "refused"
    answers.offer["policy"] = copy.deepcopy(answers.policy)
    answers.agree_anew()
    assert outcome(answers, house) == "stored"
    said = participation.shown(answers.offer, "en")
    assert "no limit for the device" in str(said["rows"])
    assert "At most 30." not in str(said)
