"""What a page shows first is computed before anybody asks for it."""

import asyncio

import pytest

from undertone_aggregator.web import api
from undertone_aggregator.web import ready as ready_module
from undertone_aggregator.web.app import make_app
from undertone_aggregator.web.ready import Ready
from undertone_aggregator.web.site import Mark, StoreSite
from undertone_shared.errors import Invalid


def test_each_change_is_prepared_once_and_a_campaign_that_fails_keeps_none_waiting() -> None:
    marks: dict[str, Mark] = {"a": (1, 10, 100), "b": (1, 20, 200), "c": (1, 30, 300)}
    prepared = []

    def prepare(name: str) -> None:
        prepared.append(name)
        if name == "b":
            raise Invalid("b cannot be read")

    ready = Ready(lambda: sorted(marks), marks.__getitem__, prepare)
    ready.look()
    assert prepared == ["a", "b", "c"]
    marks |= {"a": (1, 11, 100), "c": (1, 30, 301)}
    prepared.clear()
    ready.look()
    # More deliveries alone do not make a new computation necessary. A failed computation is tried again.
    assert prepared == ["a", "b"]


def test_the_served_application_prepares(site: StoreSite, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    recent = api.recent
    monkeypatch.setattr(api, "recent", lambda results, before: made.append(results) or recent(results, before))

    async def serve() -> None:
        app = make_app(site)
        async with app.router.lifespan_context(app):
            for _ in range(2400):
                if made:
                    return
                await asyncio.sleep(0.05)

    asyncio.run(serve())
    assert len(made) == 1


def test_a_folder_that_cannot_be_read_for_a_while_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ready_module, "_LOOK_SECONDS", 0.01)
    looks, prepared = [], []

    def names() -> list[str]:
        looks.append(0)
        if len(looks) == 1:
            raise OSError("it is not mounted")
        return ["a"]

    async def serve() -> None:
        async with Ready(names, lambda _: (1, 2, 3), prepared.append).lifespan(None):
            for _ in range(2400):
                if prepared:
                    return
                await asyncio.sleep(0.05)

    asyncio.run(serve())
    assert prepared == ["a"]
