"""Answers are computed once until a slot settles or the settings for reading change, in bounded memory."""

import asyncio
import contextlib
import sqlite3
from pathlib import Path
from typing import Any

import httpx
import pytest

from undertone_aggregator.estimate.publication import settle
from undertone_aggregator.store.store import open_store
from undertone_aggregator.web import answers, api
from undertone_aggregator.web.answers import Answers
from undertone_aggregator.web.app import make_app
from undertone_aggregator.web.site import StoreSite


def test_the_answers_used_longest_ago_go_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "LARGEST_BYTES", 10)
    kept, computed = Answers(), []

    def answer(key: str, size: int = 4) -> bytes:
        return kept.of(key, lambda: computed.append(key) or bytes(size))  # type: ignore[func-returns-value]

    for key in ("a", "b", "a", "c", "a", "b"):
        assert answer(key) == bytes(4)
    # The answer to c takes the place of the answer to b, which was used longest ago.
    assert computed == ["a", "b", "c", "b"]
    assert answer("large", 11) == bytes(11)
    assert answer("large", 11) == bytes(11)
    assert answer("b") == bytes(4)
    assert computed == ["a", "b", "c", "b", "large", "large"]


def test_an_answer_is_computed_again_when_its_numbers_may_have_changed(
    site: StoreSite, name: str, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[Any] = []
    estimates = api.estimates
    monkeypatch.setattr(api, "estimates", lambda results, query: calls.append(query) or estimates(results, query))

    async def run() -> None:
        transport = httpx.ASGITransport(make_app(site))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:

            async def get(**parameters: str) -> dict[str, Any]:
                answer = await client.get(f"/api/v1/campaigns/{name}/estimates", params=parameters)
                assert answer.headers["content-type"] == "application/json"
                return dict(answer.json())

            first = await get()
            assert await get() == first
            assert len(calls) == 1
            assert "filtered" in await get(filtered="true")
            assert (await get(tz="Asia/Tokyo"))["time_zone"] == "Asia/Tokyo"
            assert len(calls) == 3
            with open_store(store) as opened:
                settle(opened, first["settled"] + 1, 1)
            assert (await get())["settled"] == first["settled"] + 1
            assert len(calls) == 4
            with contextlib.closing(sqlite3.connect(store)) as database, database:
                database.execute("INSERT OR REPLACE INTO meta VALUES (1, 'min_reports', '1000000')")
            assert (await get())["raw"]["slot"] == []

    asyncio.run(run())
