"""The phone's program under MicroPython of 32 bits, with a stand-in for the browser."""

import json
from typing import Any

import pytest

from support.ci import unavailable
from support.factory import policy_of
from support.micropython import MISSING32, REPO, interpreter32, run_micropython32

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
"""
# Three numbers in the slot before, two in the slot, one after it.
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
answers["boots"] = [said.policy.rest_by, said.policy.boots_per_day, said.policy.write_seconds]
def promise(sensor="energy", measure="last", reading="1.001", day="24.1", life="100"):
    offer = {
        "measures": {"sensor": sensor, "measure": measure},
        "guarantee": {"reading_epsilon": reading, "day_epsilon": day, "life_epsilon": life},
    }
    return json.loads(program.call("check_promise", json.dumps([sys.argv[1], offer])))
answers["more"] = [
    promise(sensor="load"), promise(measure="sum"), promise(reading="0.9"), promise(day="2"), promise(life="99")
]
answers["as much"] = promise()
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


@pytest.fixture(scope="module")
def answers() -> dict[str, Any]:
    if interpreter32() is None:
        unavailable(MISSING32)
    policy = policy_of(
        measures=["last"], cap=[2718, 1000], slot_seconds=3600, reports_per_period=23, lifetime=100 << 20
    )
    files = {"/lib/program.py": REPO / "device/phone/phone.py", "/lib/_phone.py": BROWSER}
    done = run_micropython32(CODE, json.dumps(policy), files=files)
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


def test_a_phone_counts_by_its_clock_and_writes_each_draw(answers: dict[str, Any]) -> None:
    assert answers["boots"] == ["clock", 1000, 1]


def test_a_policy_may_allow_what_was_offered_and_no_more(answers: dict[str, Any]) -> None:
    named = ("sensor", "measures", "one number", "a day", "life")
    for word, answer in zip(named, answers["more"], strict=True):
        assert word in answer["error"]
    assert answers["as much"] == {"result": None}


def test_a_browser_without_random_numbers_is_an_error(answers: dict[str, Any]) -> None:
    assert answers["no random numbers"] > 0


def test_what_cannot_be_kept_is_an_error(answers: dict[str, Any]) -> None:
    assert answers["no number"]["error"] == "no device runs on this phone"
    assert answers["full"] > 0
