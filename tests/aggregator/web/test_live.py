"""News reaches open pages within a second, and a slow page delays no other."""

import asyncio
import time
from collections.abc import Callable

import pytest

from undertone_aggregator.web import live
from undertone_aggregator.web.live import Full, Live, OpenPage
from undertone_aggregator.web.site import Mark, StoreSite


def test_a_change_of_the_store_is_told_within_a_second(
    site: StoreSite, name: str, one_more_report: Callable[[], None]
) -> None:
    async def run() -> tuple[bytes, int]:
        looks = told_at = 0

        def news(name: str) -> bytes:
            nonlocal told_at
            told_at = looks
            return f"news of {name}".encode()

        def mark(name: str) -> Mark:
            nonlocal looks
            looks += 1
            return site.mark(name)

        told = Live(mark, news)
        messages = told.listen(name)
        waiting = asyncio.ensure_future(anext(messages))
        await asyncio.sleep(3 * live.LOOK_SECONDS)
        assert not waiting.done(), "nothing is new yet"
        await asyncio.to_thread(one_more_report)
        # The time is counted in looks, which are half a second apart unless the machine is slow.
        begun = looks
        message = await asyncio.wait_for(waiting, 120)
        await messages.aclose()
        assert told.audience == 0
        assert not told._tasks
        return message, told_at - begun

    message, took = asyncio.run(run())
    assert message == f"news of {name}".encode()
    # The look that had begun may have come before the commit.
    assert took <= 2
    assert 2 * live.LOOK_SECONDS <= 1


def test_what_is_new_between_the_answer_and_the_first_look_is_told() -> None:
    """A page that listens hears of a slot that settled after its first answer and before the first look."""
    mark = [1, 7, 0]

    async def run() -> bytes:
        told = Live(lambda name: (mark[0], mark[1], mark[2]), lambda name: b"new")
        await told.begin("load")
        mark[1] += 1
        messages = told.listen("load")
        try:
            return await asyncio.wait_for(anext(messages), 120)
        finally:
            await messages.aclose()

    assert asyncio.run(run()) == b"new"


def test_a_slow_page_loses_the_oldest_and_holds_nobody_up() -> None:
    async def run() -> list[bytes]:
        listener = OpenPage()
        for number in range(100):
            listener.tell(b"%d" % number)
        return [await listener.next() for _ in range(4)]

    assert asyncio.run(run()) == [b"96", b"97", b"98", b"99"]


def test_listeners_come_and_go_without_a_trace() -> None:
    looks = []

    def look(name: str) -> Mark:
        looks.append(name)
        return (len(looks), 0, 0)

    async def run() -> None:
        told = Live(look, lambda name: b"new")
        streams = [told.listen("load") for _ in range(1000)]
        firsts = [asyncio.ensure_future(anext(stream)) for stream in streams]
        assert await asyncio.wait_for(asyncio.gather(*firsts), 120) == [b"new"] * 1000
        assert told.audience == 1000
        assert len(told._tasks) == 1
        for stream in streams:
            await stream.aclose()
        assert (told.audience, told._tasks, told._listeners) == (0, {}, {"load": set()})

    began = time.monotonic()
    asyncio.run(run())
    most = 3 + (time.monotonic() - began) / live.LOOK_SECONDS
    assert len(looks) <= most < 1000, "one look for all of them"


def test_one_address_cannot_take_all_places(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "LARGEST_AUDIENCE", 20)

    async def run() -> None:
        told = Live(lambda name: (0, 0, 0), lambda name: b"new")
        hungry = [told.listen("load", f"2001:db8::{number:x}") for number in range(20)]
        waiting = [asyncio.ensure_future(anext(stream)) for stream in hungry]
        await asyncio.sleep(0)
        assert told.audience == 20
        with pytest.raises(Full):
            told.check_room("2001:db8::ffff")
        with pytest.raises(Full):
            await anext(told.listen("load", "2001:db8::ffff"))
        other = told.listen("load", "192.0.2.1")
        stays = asyncio.ensure_future(anext(other))
        with pytest.raises(Full):
            await waiting[0]
        assert told.audience == 20
        assert not stays.done()
        assert not waiting[1].done()
        for task in (*waiting[1:], stays):
            task.cancel()
        await asyncio.gather(*waiting[1:], stays, return_exceptions=True)
        assert told.audience == 0

    asyncio.run(run())


def test_news_that_cannot_be_made_once_come_the_next_time(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(live, "LOOK_SECONDS", 0.01)
    looks = []

    def look(name: str) -> Mark:
        looks.append(name)
        return (len(looks), 0, 0)

    def message(name: str) -> bytes:
        if len(looks) < 5:
            raise ZeroDivisionError("no devices")
        return b"new"

    async def run() -> bytes:
        stream = Live(look, message).listen("load")
        try:
            return await asyncio.wait_for(anext(stream), 120)
        finally:
            await stream.aclose()

    assert asyncio.run(run()) == b"new"
    said = "open pages get no news of load: ZeroDivisionError('no devices')"
    assert [record.message for record in caplog.records] == [said]


@pytest.mark.parametrize(
    ("began", "pages", "apart"),
    [(0.0, 50, 2.0), (10.0, 50, 2.0), (3.2e8, 50, 2.0), (0.0, 400, 4.0)],
    ids=["at boot", "seconds old", "ten years old", "many pages"],
)
def test_deliveries_alone_are_told_now_and_then_and_a_slot_at_once(
    monkeypatch: pytest.MonkeyPatch, began: float, pages: int, apart: float
) -> None:
    """More deliveries are told after ``apart`` seconds, a settled slot at once.

    ``began``: what the monotonic clock shows at first, which does not matter.
    """
    monkeypatch.setattr(live, "LOOK_SECONDS", 0.01)
    mark = [1, 7, 0]
    seconds = [began]
    made = []

    def message(name: str) -> bytes:
        made.append(tuple(mark))
        return b"%d %d %d" % tuple(mark)

    def look(name: str) -> Mark:
        mark[2] += 1
        return (mark[0], mark[1], mark[2])

    async def after(looks: int) -> None:
        until = mark[2] + looks
        while mark[2] < until:
            await asyncio.sleep(0.001)

    async def run() -> list[bytes]:
        told = Live(look, message, lambda: seconds[0])
        streams = [told.listen("load") for _ in range(pages)]
        messages = []
        for change in ("deliveries", "a slot", "deliveries"):
            waiting = [asyncio.ensure_future(anext(stream)) for stream in streams]
            if messages:
                seconds[0] += apart - 0.5
                await after(5)
                assert not any(task.done() for task in waiting), "more deliveries are told once in a while"
                if change == "a slot":
                    mark[1] += 1
                else:
                    seconds[0] += 0.5
            heard = await asyncio.wait_for(asyncio.gather(*waiting), 120)
            # All pages get the same bytes object, not equal copies.
            assert len({id(each) for each in heard}) == 1
            messages.append(heard[0])
        for stream in streams:
            await stream.aclose()
        return messages

    assert [message[:4] for message in asyncio.run(run())] == [b"1 7 ", b"1 8 ", b"1 8 "]
    assert len(made) == 3, "a message is made once for all"
