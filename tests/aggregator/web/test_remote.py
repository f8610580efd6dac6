"""`undertone.connect` gives the same results from a served page as from the page's store."""

import contextlib
import http.server
import io
import json
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from email.message import Message
from pathlib import Path

import numpy as np
import pytest
import uvicorn

import undertone
from support.refusal import refused
from support.waiting import wait_for
from undertone_aggregator.estimate import remote
from undertone_aggregator.estimate.query import Results
from undertone_aggregator.estimate.remote import RemoteResults
from undertone_aggregator.estimate.selection import Hours, OnDays
from undertone_aggregator.web.app import make_app
from undertone_aggregator.web.site import StoreSite
from undertone_shared.errors import Invalid


@pytest.fixture
def url(site: StoreSite, free_port: Callable[[], int]) -> Iterator[str]:
    port = free_port()
    server = uvicorn.Server(uvicorn.Config(make_app(site), host="127.0.0.1", port=port, log_level="error"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    wait_for(lambda: server.started, what="the page")
    yield f"http://127.0.0.1:{port}"
    server.should_exit = True
    thread.join()


@pytest.fixture
def both(url: str, store: Path) -> Iterator[tuple[Results, Results]]:
    with undertone.connect(url) as far, undertone.open_store(store) as near:
        yield far, near


def test_it_says_what_the_store_says(both: tuple[Results, Results]) -> None:
    far, near = both
    assert isinstance(far, undertone.Results)
    for name in ("guarantee", "certificate", "theta", "thetas", "budget", "mechanism", "settled", "min_reports"):
        assert getattr(far, name) == getattr(near, name), name
    assert (far.outcomes(), far.lost(), far.groups) == (near.outcomes(), near.lost(), near.groups)
    assert [epoch.phase for epoch in far.timeline.epochs] == [epoch.phase for epoch in near.timeline.epochs]
    assert far.campaign.body == near.campaign.body
    assert far.days.zone == near.days.zone
    # The two texts differ in the name of the class alone.
    assert repr(far).partition(" ")[2] == repr(near).partition(" ")[2]


def test_estimates_are_the_settled_ones(both: tuple[Results, Results], monkeypatch: pytest.MonkeyPatch) -> None:
    far, near = both
    rows = near.estimates(groups=None, settled=True)
    assert len(rows) > 50
    assert far.estimates(groups=None) == rows
    assert far.warnings(rows) == near.warnings(rows.take(rows.group == "all"))
    first, last = rows[10].slot, rows[40].slot
    assert far.estimates(first, last) == near.estimates(first, last)
    assert far.estimates(first, last, filtered=True) == near.estimates(first, last, filtered=True)
    # A selection above the limit of one request is fetched in parts.
    monkeypatch.setattr(remote, "LARGEST_SELECTION", 7)
    assert far.estimates(first, last) == near.estimates(first, last)


@pytest.mark.slow
def test_ranges_quantiles_arrays_and_frames(both: tuple[Results, Results]) -> None:
    far, near = both
    settled = near.estimates(settled=True)
    first, last = settled[0].slot, settled[-1].slot
    assert far.ranges(12) == near.ranges(12, first, last)
    evening = Hours.parse("between", "18:00-23:00")
    assert far.selection(first, last, hours=evening) == near.selection(first, last, hours=evening)
    assert far.difference(first, last, against="1d") == near.difference(first, last, against="1d")
    other = far.difference(last - 47, last, against="1d", hours=evening, zone=near.days.zone)
    assert other == near.difference(last - 47, last, against="1d", hours=evening)
    assert far.losses(first, last) == near.losses(first, last)
    assert far.refusals(first, last) == near.refusals(first, last)
    daily = OnDays("mon,tue,wed,thu,fri,sat,sun")
    assert far.selection(first, last, days=daily) == near.selection(first, last, days=daily)
    ours, theirs = far.quantiles((0.25, 0.75), 48), near.quantiles((0.25, 0.75), 48, first, last)
    assert [q.row() for q in ours] == [q.row() for q in theirs]
    for name, column in far.arrays(first, last).items():
        np.testing.assert_array_equal(column, near.arrays(first, last)[name])
    pandas = pytest.importorskip("pandas")
    frames = [each.frame(first, last, filtered=True) for each in both]
    pandas.testing.assert_frame_equal(*frames)
    assert frames[0].attrs == frames[1].attrs


def test_what_grows_is_seen(both: tuple[Results, Results], one_more_report: Callable[[], None]) -> None:
    far, _ = both
    before, mark = len(far.estimates()), far.mark
    one_more_report()
    assert len(far.estimates()) == before + 1
    assert far.mark != mark


def test_mistakes_are_sentences(url: str, name: str, free_port: Callable[[], int]) -> None:
    nobody = f"http://127.0.0.1:{free_port()}"
    for where, campaign, facts in (
        (nobody, None, (nobody, "refused")),
        ("meters.sqlite", None, ("url", "'meters.sqlite'", "http://HOST:PORT")),
        ("http://[::1", None, ("http://[::1",)),
        (url, "gas", (url, "'gas'", name)),
        (f"{url}/elsewhere", None, (f"{url}/elsewhere", "version 1", 404)),
    ):
        with refused(*facts):
            undertone.connect(where, campaign)
    with undertone.connect(url) as far:
        with refused("group", "'north'"):
            far.estimates(groups="north")
        with refused("every", "'0'", 1):
            far.ranges(0)


@pytest.mark.parametrize(
    ("answers", "facts"),
    [
        ({"campaigns": "<html>"}, ("version 1",)),
        ({"campaigns": {"campaigns": []}}, ("no campaign",)),
        ({"campaigns": {"status": "ok"}}, ("version 1",)),
        ({"campaigns": {"campaigns": ["a"]}}, ("version 1",)),
        ({"campaigns": {"campaigns": [{"name": "a"}, {"name": "b"}]}}, ("a, b",)),
        (
            {"campaigns": {"campaigns": [{"name": "a"}]}, "campaigns/a/facts": {"version": 2}},
            ("version 2", 1),
        ),
    ],
)
def test_other_servers(answers: dict[str, object], facts: tuple[object, ...]) -> None:
    class Answers(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer = answers[self.path.removeprefix("/api/v1/")]
            self.send_response(200)
            self.end_headers()
            self.wfile.write((answer if isinstance(answer, str) else json.dumps(answer)).encode())

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    with http.server.HTTPServer(("127.0.0.1", 0), Answers) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            with refused(*facts):
                undertone.connect(f"http://127.0.0.1:{server.server_port}")
        finally:
            server.shutdown()
            thread.join()


def test_a_page_that_does_not_know_its_name_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    sentence = "the page was asked for as 'power.example', which is none of its names"

    def refuse(url: str, timeout: float) -> None:
        body = io.BytesIO(json.dumps({"error": sentence}).encode())
        raise urllib.error.HTTPError(url, 421, "Misdirected Request", Message(), body)

    monkeypatch.setattr(urllib.request, "urlopen", refuse)
    with pytest.raises(Invalid, match=f"^{sentence}$"):
        undertone.connect("http://power.example")


# Part of the API, name of a field, and a call that needs the field.
QUESTIONS: list[tuple[str, str, Callable[[Results], object]]] = [
    ("", "lost", lambda far: far.lost()),
    ("", "groups", lambda far: far.groups),
    ("", "server", lambda far: far.status),
    ("/facts", "mechanism", lambda far: far.mechanism),
    ("/ranges", "ranges", lambda far: far.ranges(12)),
    ("/estimates", "warnings", lambda far: far.warnings(far.estimates()[:3])),
    ("/download", "standard_error", lambda far: far.estimates()),
]


def test_a_page_that_lacks_a_field_is_one_sentence(url: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page of an older version may lack fields that this version asks for."""
    fetch = RemoteResults._fetch
    lacks = ["", ""]

    def older(far: RemoteResults, path: str, parameters: dict[str, str] | None = None) -> str:
        text = fetch(far, path, parameters)
        if path != f"campaigns/{name}{lacks[0]}":
            return text
        lines = [json.loads(line) for line in text.splitlines()]
        return "\n".join(json.dumps({key: line[key] for key in line if key != lacks[1]}) for line in lines)

    with undertone.connect(url) as far:
        monkeypatch.setattr(RemoteResults, "_fetch", older)
        for part, field, ask in QUESTIONS:
            lacks[:] = part, field
            with refused(f"'{field}'", "another"):
                ask(far)


class Endless(http.server.BaseHTTPRequestHandler):
    """A server whose answers never end."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        with contextlib.suppress(OSError):
            while True:
                self.wfile.write(b" " * 65536)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


def test_an_answer_without_end_is_not_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "LARGEST_ANSWER", 4 << 20)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Endless) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            with refused("4 MB"):
                undertone.connect(f"http://127.0.0.1:{server.server_port}")
        finally:
            server.shutdown()
            thread.join()


def test_what_another_server_says_moves_no_cursor() -> None:
    assert remote.printable("a\x1b[2Jb\u202ec °C") == "a\ufffd[2Jb\ufffdc °C"
