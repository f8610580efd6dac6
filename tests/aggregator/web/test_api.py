"""The HTTP API: what it answers, what it refuses, and what no answer reveals."""

import asyncio
import contextlib
import csv
import io
import json
import re
import sqlite3
import threading
import tomllib
from collections.abc import Awaitable, Callable
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import httpx
import numpy as np
import pyarrow.parquet as pq
import pytest

import undertone
from undertone_aggregator.base.plain import plain
from undertone_aggregator.campaign.results import open_public, open_results
from undertone_aggregator.counts.partial import Key, Partial
from undertone_aggregator.estimate.distribution import Run
from undertone_aggregator.estimate.publication import settle, tell_groups
from undertone_aggregator.estimate.selection import Hours
from undertone_aggregator.store import sql_store
from undertone_aggregator.store.inventory import ACTIVE, Device
from undertone_aggregator.store.store import SETTLED, Batch, open_store
from undertone_aggregator.web import api, login, quantiles
from undertone_aggregator.web.app import make_app
from undertone_aggregator.web.guides import GUIDES, PICTURES
from undertone_aggregator.web.login import COOKIE, HEADER, Logins, read_token
from undertone_aggregator.web.serve import is_loopback, serve_page
from undertone_aggregator.web.site import StoreSite, named
from undertone_shared.errors import Invalid

PATIENCE = 60.0
ROOT = Path(__file__).resolve().parents[3]
TOKEN = "a-token-of-at-least-thirty-two-characters"


def talk(site: StoreSite, what: Callable[[httpx.AsyncClient], Awaitable[Any]], logins: Logins | None = None) -> Any:
    async def run() -> Any:
        transport = httpx.ASGITransport(make_app(site, logins))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await what(client)

    return asyncio.run(run())


def get(site: StoreSite, path: str, **parameters: Any) -> httpx.Response:
    answer: httpx.Response = talk(site, lambda client: client.get(f"/api/v1/{path}", params=parameters))
    return answer


def refused(site: StoreSite, path: str, status: int = 400, **parameters: Any) -> str:
    answer = get(site, path, **parameters)
    assert answer.status_code == status, answer.text
    error: str = answer.json()["error"]
    return error


def test_all_campaigns_at_a_glance(site: StoreSite, name: str, store: Path) -> None:
    (campaign,) = get(site, "campaigns").json()["campaigns"]
    with open_results(store) as results:
        last = results.estimates()[-1]
        assert campaign["guarantee"] == results.guarantee
        assert campaign["theta"] == results.theta
        assert campaign["outcomes"] == results.outcomes()
        assert campaign["newest"]["slot"] <= last.slot
    assert campaign == get(site, f"campaigns/{name}").json()
    assert campaign["name"] == name


def test_a_store_that_cannot_be_read_hides_no_other(site: StoreSite, name: str, store: Path) -> None:
    both = StoreSite({name: str(store), "water": str(store.with_name("absent.sqlite"))})
    try:
        first, second = get(both, "campaigns").json()["campaigns"]
        assert "error" not in first
        assert "there is no store" in second["error"]
        assert "there is no store" in refused(both, "campaigns/water/estimates")
    finally:
        both.close()


def test_estimates_are_the_stores_by_column(site: StoreSite, name: str, store: Path) -> None:
    answer = get(site, f"campaigns/{name}/estimates", filtered="true").json()
    with open_results(store) as results:
        rows = [row for row in results.estimates(filtered=True, settled=True) if not row.series.filtered]
        sentence = results.filter.sentence
    assert answer["raw"]["slot"] == [row.slot for row in rows]
    for said, row in zip(answer["raw"]["estimate"], rows, strict=True):
        assert (said is None) == row.is_learning
        assert said is None or said == pytest.approx(row.estimate, rel=1e-6)
    assert len(answer["filtered"]["estimate"]) == len(answer["filtered"]["slot"]) > 0
    assert answer["filter"] == sentence
    assert answer["guarantee"]


def test_recent_slots_have_each_coordinates_own_filtered_mean(tmp_path: Path) -> None:
    path = tmp_path / "pairs.sqlite"
    undertone.simulate(devices=100, collect="stream", dimension=2, slots=12, epsilon=8, seed=3).save(path)
    with open_public(path) as results:
        rows = api.recent(results).rows
        filtered = [row for row in results.estimates(filtered=True, settled=True) if row.series.filtered]
    assert {row.series.coordinate for row in rows} == {1, 2}
    assert rows == filtered


def test_what_is_not_settled_or_over_few_reports_is_not_shown(store: Path) -> None:
    with contextlib.closing(sqlite3.connect(store)) as database, database:
        database.execute("INSERT OR REPLACE INTO meta VALUES (1, 'min_reports', '1000000')")
    strict = StoreSite(named([str(store)]))
    try:
        (name,) = strict.names()
        assert get(strict, f"campaigns/{name}/estimates", filtered="true").json()["raw"]["slot"] == []
        assert get(strict, f"campaigns/{name}").json()["newest"] is None
        rows = list(csv.DictReader(io.StringIO(get(strict, f"campaigns/{name}/download").text)))
        assert {(row["kind"], row["reports"], row["cohort"], row["estimate"], row["low"]) for row in rows} == {
            ("absent", "0", "0", "", "")
        }
    finally:
        strict.close()


def test_a_selection_by_time_zone_and_by_seconds(site: StoreSite, name: str) -> None:
    starts = get(site, f"campaigns/{name}/estimates").json()["raw"]["start"]
    first, end = starts[10], starts[20]
    seconds = get(site, f"campaigns/{name}/estimates", **{"from": first, "to": end}).json()
    assert seconds["raw"]["start"] == starts[10:20]

    local = [
        datetime.fromtimestamp(at, ZoneInfo("Asia/Kolkata")).replace(tzinfo=None).isoformat() for at in (first, end)
    ]
    answer = get(site, f"campaigns/{name}/estimates", tz="Asia/Kolkata", **{"from": local[0], "to": local[1]}).json()
    assert answer["raw"]["start"] == starts[10:20]


def test_what_is_not_known_is_refused_by_its_name(site: StoreSite, name: str) -> None:
    path = f"campaigns/{name}/estimates"
    assert "'form'" in refused(site, path, form="1")
    assert "from is 'yesterday'" in refused(site, path, **{"from": "yesterday"})
    assert "from is" in refused(site, path, **{"from": "9" * 30})
    assert "tz is 'Mars'" in refused(site, path, tz="Mars")
    assert "tz is" in refused(site, path, tz="../../etc/passwd")
    assert "group is 'none'" in refused(site, path, group="none")
    assert "filtered is 'yes'" in refused(site, path, filtered="yes")
    for every in ("0", "9" * 5000):
        assert f"every is '{every}'" in refused(site, f"campaigns/{name}/quantiles", every=every)
    assert "format is 'xls'" in refused(site, f"campaigns/{name}/download", format="xls")
    assert "no campaign 'water'" in refused(site, "campaigns/water", 404)
    assert refused(site, "campaigns/..%2f..%2fetc", 404)
    assert "the first before the last" in refused(site, path, **{"from": "2000", "to": "1000"})


def test_a_huge_selection_is_refused(site: StoreSite, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "LARGEST_SELECTION", 50)
    assert "expected at most 50" in refused(site, f"campaigns/{name}/estimates", **{"from": "0"})
    assert len(get(site, f"campaigns/{name}/estimates").json()["raw"]["slot"]) <= 50


def test_quantiles_of_many_runs_are_refused(
    site: StoreSite, name: str, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server computes each run by itself, so the number of runs is limited."""
    monkeypatch.setattr(api, "LARGEST_RUNS", 2)
    with open_results(store) as results:
        begins, last = results.timeline.epochs[0].campaign.epoch, results.settled
    path = f"campaigns/{name}/quantiles"
    said = refused(site, path, every="12", **{"from": str(begins)})
    assert re.search(r"the selection has \d+ runs of 12 slots, expected at most 2", said)
    newest = get(site, path, every="12").json()["quantiles"]
    assert {row["last"] // 12 for row in newest} == {last // 12, last // 12 - 1}


def test_downloads(site: StoreSite, name: str, store: Path) -> None:
    with contextlib.closing(sqlite3.connect(store)) as database, database:
        (newest,) = database.execute("SELECT max(slot) FROM partials").fetchone()
        database.execute("DELETE FROM partials WHERE slot BETWEEN ? AND ?", (newest - 40, newest - 39))
    answer = get(site, f"campaigns/{name}/download", format="csv")
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    shown = get(site, f"campaigns/{name}/estimates").json()["raw"]["slot"]
    assert [int(row["slot"]) for row in rows if row["kind"] != "absent"] == shown
    # The answer has a row for each slot, also for the two slots in which nobody reported.
    assert [int(row["slot"]) for row in rows] == list(range(shown[0], shown[-1] + 1))
    assert len(rows) == len(shown) + 2
    assert all((row["reports"], row["estimate"]) == ("0", "") for row in rows if row["kind"] == "absent")
    for row in rows:
        assert datetime.fromisoformat(row["time"]).timestamp() == int(row["start"])
    assert answer.headers["content-disposition"] == f'attachment; filename="{name}.csv"'
    lines = get(site, f"campaigns/{name}/download", format="jsonl").text.splitlines()
    assert len(lines) == len(rows)
    json.loads(lines[0])
    parquet = get(site, f"campaigns/{name}/download", format="parquet")
    assert pq.read_table(io.BytesIO(parquet.content)).num_rows == len(rows)
    influx = get(site, f"campaigns/{name}/download", format="influx")
    assert len(influx.text.splitlines()) == len(rows)
    assert influx.headers["content-disposition"] == f'attachment; filename="{name}.influx"'
    assert "expected one of csv, jsonl, parquet, influx" in refused(site, f"campaigns/{name}/download", format="xls")


def test_the_means_alone_are_a_small_file(site: StoreSite, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = f"campaigns/{name}/download"
    answer = get(site, path, of="means", filtered="true", by="group", tz="Europe/Amsterdam")
    assert answer.headers["content-disposition"] == f'attachment; filename="{name}-means.csv"'
    header, *rows = csv.reader(io.StringIO(answer.text))
    assert header == ["time", "group", "mean", "plus_minus", "unit"]
    shown = get(site, f"campaigns/{name}/estimates", filtered="true").json()
    assert [row[0] for row in rows if row[1] == "all"] == [
        f"{datetime.fromtimestamp(start, ZoneInfo('Europe/Amsterdam')):%Y-%m-%d %H:%M:%S}"
        for start in shown["filtered"]["start"]
    ]
    assert [float(row[2]) for row in rows if row[1] == "all"] == pytest.approx(shown["filtered"]["estimate"])
    half = (np.array(shown["filtered"]["high"]) - np.array(shown["filtered"]["low"])) / 2
    assert [float(row[3]) for row in rows if row[1] == "all"] == pytest.approx(half, rel=1e-5)
    assert {row[4] for row in rows} == {shown["unit"]}
    _, *raw = csv.reader(io.StringIO(get(site, path, of="means").text))
    # A slot of a threshold round has no mean.
    known = [value for value in shown["raw"]["estimate"] if value is not None]
    assert [float(row[2]) for row in raw] == pytest.approx(known)
    assert "format is 'jsonl', expected csv" in refused(site, path, of="means", format="jsonl")
    assert "there is no parameter 'by'" in refused(site, path, by="group")
    monkeypatch.setattr(api, "LARGEST_SELECTION", 2)
    assert "expected at most 2" in refused(site, path, of="means", **{"from": "0"})


def test_a_selection_has_one_mean(site: StoreSite, name: str, store: Path) -> None:
    path = f"campaigns/{name}/selection"
    answer = get(site, path, between="18:00-23:00").json()
    with open_results(store) as results:
        hours = Hours.parse("between", "18:00-23:00")
        first = results.timeline.epochs[0].campaign.first_slot
        (expected,) = results.selection(first, results.settled, hours=hours)
    (row,) = answer["selections"]
    assert row == plain(expected.row())
    assert answer["guarantee"]
    assert "between is '18-23'" in refused(site, path, between="18-23")
    assert "days is 'monday'" in refused(site, path, days="monday")
    assert "'by' is 'region'" in refused(site, path, by="region")
    assert "exclude each other" in refused(site, path, by="group", group="all")
    assert "'every'" in refused(site, path, every="2")


def test_a_difference_of_two_means(site: StoreSite, name: str, store: Path) -> None:
    path = f"campaigns/{name}/difference"
    answer = get(site, path, against="1d", between="18:00-23:00").json()
    with open_public(store) as results:
        first = results.timeline.epochs[0].campaign.first_slot
        (expected,) = results.difference(first, results.settled, against="1d", hours="18:00-23:00")
    (row,) = answer["differences"]
    assert row == plain(expected.row())
    assert row["verdict"] in ("more", "less", "unclear")
    assert answer["guarantee"]
    assert "against is missing" in refused(site, path)
    assert "against is 'yesterday'" in refused(site, path, against="yesterday")
    assert "group is 'nowhere'" in refused(site, path, against="group:nowhere")
    assert "another group" in refused(site, path, against="group:all")


def test_one_call_selects_days_and_every_group(site: StoreSite, name: str, store: Path) -> None:
    groups = get(site, f"campaigns/{name}").json()["groups"]
    rows = get(site, f"campaigns/{name}/selection", by="group", days="mon,tue,wed,thu,fri,sat,sun").json()["selections"]
    assert [row["group"] for row in rows] == groups
    whole = get(site, f"campaigns/{name}/selection").json()["selections"]
    assert next(row for row in rows if row["group"] == "all") == whole[0]
    some = get(site, f"campaigns/{name}/selection", days="workdays").json()["selections"]
    others = get(site, f"campaigns/{name}/selection", days="days-off")
    apart = 0 if others.status_code == 400 else others.json()["selections"][0]["slots"]
    assert some[0]["slots"] + apart == whole[0]["slots"]


def test_losses_are_a_row_for_each_slot_and_a_file(site: StoreSite, name: str) -> None:
    answer = get(site, f"campaigns/{name}/losses").json()
    columns = answer["losses"]
    assert len(columns["slot"]) == columns["slot"][-1] - columns["slot"][0] + 1
    assert all(gap["empty"] <= gap["slots"] for gap in answer["gaps"])
    file = get(site, f"campaigns/{name}/download", of="losses", format="csv")
    assert len(file.text.splitlines()) == 1 + len(columns["slot"])
    assert f"{name}-losses.csv" in file.headers["content-disposition"]
    refusals = get(site, f"campaigns/{name}/download", of="refusals", format="csv")
    assert refusals.text.splitlines()[0].split(",")[:4] == [*answer["refusals"]][:4]
    assert "'of' is 'gaps'" in refused(site, f"campaigns/{name}/download", of="gaps")


def test_a_threshold_round_is_drawn_as_no_estimate(site: StoreSite, name: str) -> None:
    raw = get(site, f"campaigns/{name}/estimates").json()["raw"]
    learning = [i for i, kind in enumerate(raw["kind"]) if kind == "model"]
    assert learning
    assert all(raw["estimate"][i] is None and raw["model"][i] is not None for i in learning)
    assert all(raw["model"][i] is None for i in range(len(raw["kind"])) if i not in learning)
    recent = get(site, f"campaigns/{name}").json()["recent"]
    for kind, estimate in zip(recent["kind"], recent["estimate"], strict=True):
        assert (estimate is None) == (kind == "model")


def test_quantiles_and_the_history_of_theta(site: StoreSite, name: str, store: Path) -> None:
    rows = get(site, f"campaigns/{name}/quantiles").json()["quantiles"]
    assert {row["share"] for row in rows} == {0.1, 0.5, 0.9}
    epochs = get(site, f"campaigns/{name}/epochs").json()["epochs"]
    with open_results(store) as results:
        assert [epoch["epoch"] for epoch in epochs] == [e.campaign.epoch for e in results.timeline.epochs]
        assert epochs[-1]["theta"] == results.theta
        assert epochs[-1]["ranges"] == [list(block) for block in results.blocks] != []
        assert not epochs[0]["ranges"], "a threshold round has none"
    campaign = get(site, f"campaigns/{name}").json()
    assert campaign["ranges"] == epochs[-1]["ranges"]
    assert campaign["theta"] == max(theta for _, _, theta in campaign["ranges"])


def test_the_description_names_every_route(site: StoreSite) -> None:
    described = set(get(site, "openapi.json").json()["paths"])
    routes = {route.path for route in make_app(site).routes if route.path.startswith("/api/v1/campaigns")}
    assert described == {path for path in routes if "actions" not in path}


def test_the_guides_that_the_page_names_are_there(site: StoreSite) -> None:
    static = ROOT / "aggregator" / "undertone_aggregator" / "web" / "static"
    page = talk(site, lambda client: client.get("/")).text
    advice = (static / "state.js").read_text(encoding="utf-8").split("const ADVICE = {")[1].split("\n};")[0]
    linked = {*re.findall(r'href="guides/([\w-]+)\.md', page), *re.findall(r'", "([\w-]+)"\]', advice)}
    assert {"privacy", "threats", "scale"} < linked <= set(GUIDES)
    packaged = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    included = packaged["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    for file in (*(f"{guide}.md" for guide in GUIDES), *PICTURES):
        assert included[f"docs/{file}"] == f"undertone_aggregator/web/guides/{file}"
    for path in ("operator.md", "diagrams/rooms.svg", "..%2Fapp.py", "diagrams%2F..%2Fprivacy.md"):
        assert talk(site, lambda client, path=path: client.get(f"/guides/{path}")).status_code == 404


def test_the_guides_are_pages_whose_links_lead_somewhere(site: StoreSite) -> None:
    async def ask(client: httpx.AsyncClient) -> dict[str, httpx.Response]:
        paths = [*(f"{guide}.md" for guide in GUIDES), *PICTURES]
        return {path: await client.get(f"/guides/{path}") for path in paths}

    answers = talk(site, ask)
    assert {answer.status_code for answer in answers.values()} == {200}
    texts = {path: answer.text for path, answer in answers.items() if path.endswith(".md")}
    assert {answers[path].headers["content-type"] for path in texts} == {"text/html; charset=utf-8"}
    assert answers[PICTURES[0]].headers["content-type"].startswith("image/svg+xml")
    anchors = {path: re.findall(r' id="([^"]+)"', text) for path, text in texts.items()}
    followed = 0
    for path, text in texts.items():
        assert text.count("<h1") == 1
        assert len(anchors[path]) == len(set(anchors[path])), "two headings have the same anchor"
        assert "](" not in text.split("<footer>")[0], "a link is left as Markdown"
        for link in re.findall(r'href="([^":]*)"', text.split("<main")[1]):
            to, _, anchor = link.partition("#")
            assert to in ("", "../", *texts), link
            assert not anchor or anchor in anchors[to or path], link
            followed += bool(anchor)
        assert set(re.findall(r'<img src="([^"]+)"', text)) <= set(PICTURES)
    assert followed > 5
    assert "<table>" in texts["glossary.md"] or "<table>" in texts["privacy.md"]


def test_every_answer_keeps_the_page_to_itself(site: StoreSite, name: str) -> None:
    async def ask(client: httpx.AsyncClient) -> list[httpx.Response]:
        paths = ("/", "/static/app.js", "/static/style.css", "/api/v1/campaigns", "/nothing", "/static/../app.py")
        return [await client.get(path) for path in paths]

    answers = talk(site, ask)
    assert [answer.status_code for answer in answers] == [200, 200, 200, 200, 404, 404]
    for answer in answers:
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "set-cookie" not in answer.headers


@pytest.mark.parametrize(
    "path",
    ["/static/%2e%2e/app.py", "/static/..%2fapp.py", "/static//etc/passwd", "/static/%00", "/..%2f..%2fetc/passwd"],
)
def test_no_path_leads_out(site: StoreSite, path: str) -> None:
    answer = talk(site, lambda client: client.get(path))
    assert answer.status_code == 404
    assert b"import" not in answer.content


def test_nothing_can_be_changed_without_a_login(site: StoreSite, name: str) -> None:
    async def ask(client: httpx.AsyncClient) -> list[int]:
        action = f"/api/v1/campaigns/{name}/actions/pause"
        return [
            (await client.post(action)).status_code,
            (await client.post("/api/v1/campaigns")).status_code,
            (await client.delete(f"/api/v1/campaigns/{name}")).status_code,
            (await client.post("/api/v1/session", json={"token": TOKEN})).json(),
        ]

    assert talk(site, ask) == [404, 405, 405, {"actions": []}]


@pytest.fixture
def acted(store: Path) -> tuple[StoreSite, list[str]]:
    done: list[str] = []

    def pause(name: str, _: str) -> str:
        done.append(name)
        return f"{name} pauses"

    return StoreSite(named([str(store)]), {"pause": pause}), done


def test_an_action_needs_the_token_the_cookie_and_the_same_site(acted: tuple[StoreSite, list[str]]) -> None:
    site, done = acted
    (name,) = site.names()
    action = f"/api/v1/campaigns/{name}/actions/pause"

    async def ask(client: httpx.AsyncClient) -> None:
        assert (await client.post(action)).status_code == 403
        assert (await client.post("/api/v1/session", json={"token": "wrong"})).status_code == 403
        assert (await client.post("/api/v1/session", content=b"x" * 5000)).status_code == 413
        assert (await client.post("/api/v1/session", content=b"[]")).status_code == 400
        assert (await client.post("/api/v1/session", content=b"[" * 4000)).status_code == 400
        assert (await client.post("/api/v1/session", content=b'{"token": "\\ud800"}')).status_code == 403
        entered = await client.post("/api/v1/session", json={"token": TOKEN})
        cookie = entered.headers["set-cookie"].lower()
        assert "httponly" in cookie
        assert "samesite=strict" in cookie
        against = entered.json()["token"]
        # A forged form would send the cookie, and nothing else.
        assert (await client.post(action)).status_code == 403
        for wrong in (b"wrong", b"\xff"):
            assert (await client.post(action, headers={HEADER.encode(): wrong})).status_code == 403
        for headers in ({"origin": "https://evil.test"}, {"sec-fetch-site": "cross-site"}):
            assert (await client.post(action, headers={HEADER: against, **headers})).status_code == 403
        assert done == []
        answer = await client.post(action, headers={HEADER: against, "origin": "http://localhost"})
        assert answer.json() == {"done": f"{name} pauses"}
        assert (await client.post(f"{action}x", headers={HEADER: against})).status_code == 404
        await client.delete("/api/v1/session")
        client.cookies.set(COOKIE, entered.cookies[COOKIE])
        assert (await client.post(action, headers={HEADER: against})).status_code == 403

    talk(site, ask, Logins(TOKEN))
    assert done == [name]
    site.close()


def test_the_token_cannot_be_guessed_in_a_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr(login.time, "monotonic", lambda: now[0])
    logins = Logins(TOKEN)
    for _ in range(10):
        assert logins.enter("wrong", "192.0.2.1") is None
    assert logins.is_throttled("192.0.2.1")
    assert logins.enter(TOKEN, "192.0.2.1") is None
    now[0] += 61
    entered = logins.enter(TOKEN, "192.0.2.1")
    assert entered is not None
    assert logins.allows(*entered)
    now[0] += login.SESSION_SECONDS
    assert not logins.allows(*entered)


def test_wrong_tokens_lock_nobody_else_out() -> None:
    logins = Logins(TOKEN)
    for number in range(20):
        logins.enter("wrong", "192.0.2.1")
        logins.enter("wrong", f"2001:db8::{number:x}")
    assert logins.is_throttled("192.0.2.1")
    assert logins.is_throttled("2001:db8::ffff"), "one /64 is one address"
    for address in ("192.0.2.2", "2001:db8:0:1::1", "127.0.0.1"):
        assert logins.enter(TOKEN, address) is not None


def test_what_is_remembered_of_wrong_tokens_is_bounded() -> None:
    logins = Logins(TOKEN)
    for number in range(login._LARGEST_NETWORKS + 100):
        logins.enter("wrong", f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}")
    assert len(logins._tries) == login._LARGEST_NETWORKS


def test_an_address_that_guesses_is_told_to_wait(acted: tuple[StoreSite, list[str]]) -> None:
    async def ask(client: httpx.AsyncClient) -> list[int]:
        return [(await client.post("/api/v1/session", json={"token": "wrong"})).status_code for _ in range(11)]

    assert talk(acted[0], ask, Logins(TOKEN)) == [403] * 10 + [429]
    acted[0].close()


@pytest.mark.slow_but("192.0.2.7-200", "stats.example.org-200")
@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost:8080", 200),
        ("LOCALHOST.", 200),
        ("127.0.0.1:8080", 200),
        ("[::1]:8080", 200),
        ("192.0.2.7", 200),
        ("stats.example.org", 200),
        ("evil.example", 421),
        ("evil.example:8080", 421),
        ("localhost.evil.example", 421),
        ("127.0.0.1.evil.example", 421),
        ("stats.example.org.evil.example", 421),
        ("[evil.example]", 421),
        ("", 421),
    ],
)
def test_a_name_that_is_not_the_pages_is_refused(site: StoreSite, host: str, status: int) -> None:
    """An attacker's site could let its own name resolve to this machine, and then read the page as its own."""

    async def ask() -> list[httpx.Response]:
        transport = httpx.ASGITransport(make_app(site, None, ["stats.example.org"]))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            paths = ("/", "/api/v1/campaigns", "/static/app.js")
            return [await client.get(path, headers={"host": host}) for path in paths]

    answers = asyncio.run(ask())
    assert [answer.status_code for answer in answers] == [status] * 3
    if status == 421:
        assert repr(host) in answers[0].json()["error"]
        assert "page_names" in answers[0].json()["error"]
        assert "content-security-policy" in answers[0].headers


def test_a_token_that_others_can_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text(TOKEN + "\n", encoding="utf-8")
    path.chmod(0o644)
    with pytest.raises(Invalid, match="mode 0644, expected 0600"):
        read_token(path)
    path.chmod(0o600)
    assert read_token(path) == TOKEN
    path.write_text("short", encoding="utf-8")
    with pytest.raises(Invalid, match="at least 32"):
        read_token(path)


def test_actions_stay_on_this_machine_unless_that_is_meant(site: StoreSite) -> None:
    assert [is_loopback(host) for host in ("127.0.0.1", "::1", "localhost", "0.0.0.0", "192.0.2.1")] == [True] * 3 + [
        False
    ] * 2
    with pytest.raises(Invalid, match="expected a loopback address"):
        serve_page(site, "0.0.0.0", 1, logins=Logins(TOKEN))


def test_two_stores_of_one_campaign_are_refused(store: Path, name: str) -> None:
    with pytest.raises(Invalid, match=f"campaign {name} is in"):
        named([str(store), str(store)])


@pytest.mark.slow
def test_quantiles_of_others_keep_nobody_waiting(site: StoreSite, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Quantiles do not delay other answers.

    Equal requests share a computation, and a request beyond the queue's limit is refused.
    """
    go_on, begun, worked_out = threading.Event(), threading.Event(), []
    posterior = Run.posterior

    def slow(run: Run) -> Any:
        begun.set()
        assert go_on.wait(PATIENCE)
        worked_out.append(run.first)
        return posterior(run)

    monkeypatch.setattr(Run, "posterior", slow)
    monkeypatch.setattr(quantiles, "LARGEST_QUEUE", 2)
    path = f"/api/v1/campaigns/{name}"

    async def ask(client: httpx.AsyncClient) -> None:
        asked = [asyncio.create_task(client.get(f"{path}/quantiles", params={"shares": "0.5"})) for _ in range(3)]
        await asyncio.to_thread(begun.wait, PATIENCE)
        assert (await client.get(path)).status_code == 200
        assert (await client.get(f"{path}/estimates")).status_code == 200
        done, waiting = await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED, timeout=PATIENCE)
        (refused,) = (each.result() for each in done)
        assert refused.status_code == 503
        assert "wait already" in refused.json()["error"]
        go_on.set()
        answers = [(await each).json() for each in waiting]
        assert answers[0] == answers[1]
        runs = [row["first"] for row in answers[0]["quantiles"]]
        assert sorted(worked_out) == runs
        again = (await client.get(f"{path}/quantiles", params={"shares": "0.5"})).json()
        assert (again, sorted(worked_out)) == (answers[0], runs)

    talk(site, ask)


@pytest.mark.slow
def test_a_late_report_changes_nothing_that_was_published(site: StoreSite, name: str, store: Path) -> None:
    """The operator sees the late reports, and the page states how many there are."""
    paths = ("estimates", "ranges", "quantiles", "download")
    before = [get(site, f"campaigns/{name}/{path}").text for path in paths]
    with open_store(store) as opened:
        newest = opened.newest_slot()
        assert newest is not None
        again = opened.partial(newest - 60, newest)
        opened.commit("0of1", Batch(again))
        late = opened.late_reports()
    assert late == again.reports > 1000
    assert [get(site, f"campaigns/{name}/{path}").text for path in paths] == before
    assert get(site, f"campaigns/{name}").json()["unpublished"] == late
    with open_results(store) as results:
        (counted,) = results.estimates(newest, newest)
    assert counted.reports == 2 * json.loads(before[0])["raw"]["reports"][-1]


def test_every_outlet_obeys_min_reports_and_a_plan_that_is_applied(site: StoreSite, name: str, store: Path) -> None:
    assert get(site, f"campaigns/{name}/quantiles").json()["quantiles"]
    zone = get(site, f"campaigns/{name}").json()["time_zone"]
    with open_store(store) as opened:
        opened.set_meta({"min_reports": "1000000", "time_zone": "Asia/Kolkata"})
    assert zone != "Asia/Kolkata"
    now = get(site, f"campaigns/{name}").json()
    assert (now["time_zone"], now["newest"], now["published"]) == ("Asia/Kolkata", None, None)
    for path, rows in (("quantiles", "quantiles"), ("ranges", "ranges")):
        assert get(site, f"campaigns/{name}/{path}").json()[rows] == []
    assert get(site, f"campaigns/{name}/estimates").json()["raw"]["slot"] == []
    rows = list(csv.DictReader(io.StringIO(get(site, f"campaigns/{name}/download").text)))
    assert {(row["kind"], row["reports"], row["estimate"]) for row in rows} == {("absent", "0", "")}
    with open_store(store) as opened:
        opened.set_meta({"min_reports": "10"})
    assert get(site, f"campaigns/{name}").json()["newest"] is not None


def test_a_selection_names_no_number_of_devices_that_others_give_away(site: StoreSite, name: str, store: Path) -> None:
    """West's number of devices is withheld: with it, all devices less east and west would reveal that solo has one.

    West's total is withheld as well: divided by the mean, it would give this number away.
    """
    with open_store(store) as opened:
        newest = opened.newest_slot()
        assert newest is not None
        batch = Batch()
        for key, counts in opened.partial(newest, newest).items():
            for group in ("east", "west"):
                batch.partial.add_counts(key._replace(slot=newest + 1, group=group), counts)
        opened.commit("0of1", batch)
        sizes = {"east": 500, "solo": 1, "west": 400}
        opened.set_devices(
            Device(f"{group}-{number}", group, ACTIVE, 0) for group, n in sizes.items() for number in range(n)
        )
        settle(opened, newest + 1, 10)
        assert tell_groups(opened, 10) == {"all", "east"}
    named_devices = {}
    for group in ("all", "east", "west"):
        (row,) = get(site, f"campaigns/{name}/selection", group=group).json()["selections"]
        assert (row["devices"] is None) == (row["total"] is None) == (row["total_se"] is None)
        named_devices[group] = row["devices"]
    assert named_devices == {"all": 901, "east": 500, "west": None}
    assert get(site, f"campaigns/{name}/selection", group="solo").status_code == 400
    for group, published in (("all", True), ("east", True), ("west", False)):
        found = get(site, f"campaigns/{name}/losses", group=group).json()["losses"]
        assert {
            (late is not None, lost is not None) for late, lost in zip(found["late"], found["lost"], strict=True)
        } == {(published, published)}
        assert {n is not None for n in found["refused"]} == {group == "all"}
    assert get(site, f"campaigns/{name}/losses", group="solo").status_code == 400


def test_groups_are_told_without_reading_a_histogram(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def groups() -> tuple[str, ...]:
        with monkeypatch.context() as patched:
            patched.setattr(sql_store, "unpack_each", None)
            return results.groups

    with open_results(store) as results:
        assert groups() == ("all",)
        with open_store(store) as opened:
            opened.set_meta({SETTLED: "0"})
            key = Key("x", bytes(8), 1, "north", 10**6)
            opened.commit("1of1", Batch(Partial({key: np.ones(3, dtype=np.int64)})))
        assert groups() == ("all", "north")
