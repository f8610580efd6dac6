"""The phone's program under a MicroPython of 32 bits; the test stands for the browser."""

import json
from typing import Any

import pytest

from support.ci import unavailable
from support.factory import policy_of
from support.micropython import MISSING32, REPO, interpreter32, run_micropython32
from undertone_device.host.consent import consent
from undertone_device.host.words import read_words
from undertone_shared.policy import parse_policy

BROWSER = """
import os
files = {}
now = 1_800_000_000
random = lambda count: open("/dev/urandom", "rb").read(count).hex()
seconds = lambda: str(now)
milliseconds = network_milliseconds = lambda: "5"
sample = lambda: None
read = files.get
def write(name, content):
    if name.endswith("full"):
        return False
    files[name] = content
    return True
delete = lambda name: files.pop(name, None) is None or True
erased = []
erase = lambda: erased.append(dict(files))
"""
# Five numbers are entered: two in slot 499,999, two in slot 500,000, whose value is asked for, and one in slot 500,001.
CODE = """
import json, os, sys
import program, _phone
class Campaign:
    slot_seconds = 3600
class Said(program.Phone):
    campaign = None
    def __init__(self):
        self._modulus = 0
        self.storage = program.JournalStorage("energy")
        self.policy = program.phone_policy(sys.argv[1])
        self.others = self.client = self
        self._entered = True
        self._checked = -1
    _report_last = exchange = lambda *_: None
said = Said()
begin = 500_000 * 3600
for second, number in ((-3000, 7), (-60, 40), (0, 50), (3599, 90), (3600, 200)):
    _phone.now = begin + second
    said.enter(number)
answers = {}
for measure in ("last", "sum", "max", "mean", "counter", "duration"):
    Campaign.measure = measure
    answers[measure] = said._value(Campaign, 500_000)
answers["nothing"] = said._value(Campaign, 500_002)
def steps_at(second):
    _phone.now = begin + second
    said.step()
    return [entry[1] for entry in json.loads(bytes.fromhex(_phone.files["state/energy/entries"]))]
# A slot has 3600 s. Nothing is entered any more; the last number was entered in the slot that begins at 3600.
answers["kept"] = [steps_at(second) for second in (3600, 7199, 7200, 10799, 10800, 14399, 14400)]
answers["erased"] = [bytes.fromhex(each["state/energy/entries"]).decode() for each in _phone.erased]
said.enter(300)
answers["set back"] = [steps_at(second) for second in (14400, 14401, 10799)]
answers["boots"] = [said.policy.rest_by, said.policy.boots_per_day, said.policy.write_seconds]
words = json.loads(sys.argv[2])
policy = json.loads(sys.argv[1])
def call(action, *values):
    return json.loads(program.call(action, json.dumps(values)))
offer = {"operator": "The town", "about": None, "policy": policy}
answers["offer"] = call("describe_offer", offer, words)
answers["stored"] = call("describe_policy", sys.argv[1], words)
wrong = [{"policy": None}, {"policy": dict(policy, cap=[1])}, {"operator": 5}]
wrong.append({"policy": dict(policy, agreed="0" * 32)})
answers["wrong"] = [call("describe_offer", dict(offer, **change), words) for change in wrong]
answers["same"] = call("same_policy", policy, sys.argv[1])
answers["other"] = [
    call("same_policy", policy, json.dumps(dict(policy, **change))) for change in ({"lifetime": 0}, {"stream": True})
]
_phone.random = lambda count: None
try:
    os.urandom(8)
except OSError as error:
    answers["no random numbers"] = error.errno
answers["no number"] = json.loads(program.call("enter", '["five"]'))
try:
    said.storage.write("full", b"1")
except OSError as error:
    answers["full"] = error.errno
print(json.dumps(answers))
"""


POLICY = policy_of(
    measures=["last"], cap=[2718, 1000], slot_seconds=3600, reports_per_period=23, lifetime=100 << 20, unit="Wh"
)


@pytest.fixture(scope="module")
def answers() -> dict[str, Any]:
    if interpreter32() is None:
        unavailable(MISSING32)
    files = {"/lib/program.py": REPO / "device/phone/phone.py", "/lib/_phone.py": BROWSER}
    words = read_words("de")["consent"]
    done = run_micropython32(CODE, json.dumps(POLICY), json.dumps(words), files=files)
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize(
    ("measure", "value"),
    [("last", 90), ("sum", 140), ("max", 90), ("mean", 70), ("counter", 50), ("duration", 90), ("nothing", None)],
)
def test_the_value_of_a_slot_comes_from_the_numbers_entered_in_it(
    answers: dict[str, Any], measure: str, value: int | None
) -> None:
    assert answers[measure] == value


def test_a_number_is_kept_for_three_slots_whether_or_not_another_is_entered(answers: dict[str, Any]) -> None:
    first, second, third = [7, 40, 50, 90, 200], [50, 90, 200], [200]
    assert answers["kept"] == [first, first, second, second, third, third, []]
    # Each removal also removes what the disk kept of the numbers.
    assert [len(json.loads(kept)) for kept in answers["erased"][:3]] == [3, 1, 0]
    assert answers["set back"] == [[300], [300], []]


def test_a_phone_counts_by_its_clock_and_writes_each_draw(answers: dict[str, Any]) -> None:
    assert answers["boots"] == ["clock", 1000, 1]


def test_what_a_person_reads_is_computed_on_the_phone_as_elsewhere(answers: dict[str, Any]) -> None:
    expected = consent(parse_policy(json.dumps(POLICY).encode()), read_words("de")["consent"])
    assert answers["offer"] == answers["stored"] == {"result": expected}
    assert all("error" in answer for answer in answers["wrong"])


def test_no_policy_is_kept_but_the_one_that_was_shown(answers: dict[str, Any]) -> None:
    assert answers["same"] == {"result": None}
    assert all("not the one that was shown" in answer["error"] for answer in answers["other"])


def test_a_browser_without_random_numbers_is_an_error(answers: dict[str, Any]) -> None:
    assert answers["no random numbers"] > 0


def test_what_cannot_be_kept_is_an_error(answers: dict[str, Any]) -> None:
    assert answers["no number"]["error"] == "this phone does not take part now"
    assert answers["full"] > 0
