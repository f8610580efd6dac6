"""A slow source is read in a thread. It is not asked again before it has answered, and late answers are dropped."""

import threading

import pytest

from support.refusal import refused, told
from undertone_device.host.sources.background import BackgroundReader
from undertone_device.host.sources.source import SensorSource


class Slow(SensorSource):
    """A source that answers once ``allowed`` is set."""

    def __init__(self, *answers):
        self.allowed = threading.Event()
        self.asked = 0
        self._answers = list(answers)

    def sample(self, now):
        self.asked += 1
        assert self.allowed.wait(60)
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def answer(background, source, now, slot_seconds):
    source.allowed.set()
    assert background._done.wait(60)
    return background.answer(now, slot_seconds)


def test_an_answer_comes_once_and_in_its_slot():
    source = Slow(7)
    background = BackgroundReader(source)
    assert background.answer(1000, 900) is None
    assert background.read(1000) is None
    assert background.answer(1000, 900) is None
    # While the first question has no answer, no second one is asked.
    assert background.read(1100) is None
    assert told(background.trouble, "no sample", "100 s")
    assert answer(background, source, 1799, 900) == 7
    assert background.answer(1799, 900) is None
    assert (source.asked, background.trouble) == (1, "")


def test_an_answer_after_its_slot_is_none():
    source = Slow(7, 8)
    background = BackgroundReader(source)
    background.read(1000)
    with refused("slot", error=ValueError):
        answer(background, source, 1800, 900)
    assert told(background.trouble, "no sample", "slot")
    background.read(1800)
    assert answer(background, source, 1810, 900) == 8
    assert background.trouble == ""


@pytest.mark.parametrize("error", [OSError("away"), ValueError("no number")])
def test_what_went_wrong_is_raised_where_the_answer_is_taken(error):
    source = Slow(error)
    background = BackgroundReader(source)
    background.read(1000)
    with pytest.raises(type(error), match=str(error)):
        answer(background, source, 1001, 900)
    assert background.trouble == f"no sample: {error}"
    assert background.answer(1001, 900) is None
