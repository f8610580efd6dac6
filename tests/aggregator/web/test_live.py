"""News to open pages: within a second, and a slow page holds nobody up."""

import asyncio
from collections.abc import Callable

from undertone_aggregator.web import live
from undertone_aggregator.web.live import Live, OpenPage
from undertone_aggregator.web.site import StoreSite


def test_a_change_of_the_store_is_told_within_a_second(
    site: StoreSite, name: str, one_more_report: Callable[[], None]
) -> None:
    async def run() -> tuple[str, float]:
        told = Live(site.mark, lambda name: f"news of {name}")
        messages = told.listen(name)
        waiting = asyncio.ensure_future(anext(messages))
        await asyncio.sleep(3 * live.LOOK_SECONDS)
        assert not waiting.done(), "nothing is new yet"
        begun = asyncio.get_running_loop().time()
        await asyncio.to_thread(one_more_report)
        message = await asyncio.wait_for(waiting, 10)
        took = asyncio.get_running_loop().time() - begun
        await messages.aclose()
        assert told.audience == 0
        assert not told._tasks
        return message, took

    message, took = asyncio.run(run())
    assert message == f"news of {name}"
    # Two looks, and a busy machine.
    assert took < 5


def test_a_slow_page_loses_the_oldest_and_holds_nobody_up() -> None:
    async def run() -> list[str]:
        listener = OpenPage()
        for number in range(100):
            listener.tell(str(number))
        return [await listener.next() for _ in range(4)]

    assert asyncio.run(run()) == ["96", "97", "98", "99"]


def test_listeners_come_and_go_without_a_trace() -> None:
    looks = []

    def look(name: str) -> tuple[int, ...]:
        looks.append(name)
        return (len(looks),)

    async def run() -> None:
        told = Live(look, lambda name: "new")
        streams = [told.listen("load") for _ in range(1000)]
        firsts = [asyncio.ensure_future(anext(stream)) for stream in streams]
        assert await asyncio.wait_for(asyncio.gather(*firsts), 30) == ["new"] * 1000
        assert told.audience == 1000
        assert len(told._tasks) == 1
        for stream in streams:
            await stream.aclose()
        assert (told.audience, told._tasks, told._listeners) == (0, {}, {"load": set()})

    asyncio.run(run())
    assert len(looks) < 20, "one look for all of them"
