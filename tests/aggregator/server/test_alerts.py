"""Alerts: which message is due when, and how Apprise delivers messages to a web hook and a mail server of the test."""

import itertools
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from support.ci import unavailable
from support.command import undertone
from support.direct import write_home
from support.many import PLAN, Running
from support.waiting import wait_for
from undertone_aggregator.base.room import by_files
from undertone_aggregator.campaign.binding import RETIRED
from undertone_aggregator.campaign.state import FAILED, OVER, RUNNING, CampaignState, ServerState
from undertone_aggregator.server.alert_sender import read_addresses
from undertone_aggregator.server.alerts import Alerts, Problem, lasting_problems
from undertone_aggregator.server.folder import Home
from undertone_shared.errors import Invalid

# A plugin of Apprise uses the module imghdr, which is deprecated since Python 3.11.
pytestmark = pytest.mark.filterwarnings("ignore:'imghdr' is deprecated:DeprecationWarning")
DAY = 86400
SILENT, ENDS, CONFLICT = ("power", "silent"), ("power", "ends"), ("power", "conflict")


def due(alerts: Alerts, ticks: float, lasting: dict[Problem, int], events: dict[Problem, int] | None = None) -> str:
    """Return the message that is due, or "", and count it as delivered."""
    alerts.note(lasting, events or {}, ticks, ticks)
    message = alerts.message(ticks)
    if message is None:
        return ""
    alerts.delivered(ticks)
    return message.title + "\n" + message.body


def test_a_problem_is_sent_once_it_has_lasted_and_its_end_as_well() -> None:
    alerts = Alerts(60.0)
    assert due(alerts, 100, {SILENT: 0}) == ""
    assert "1 new problem\nProblem: [power] no report has come" in due(alerts, 160, {SILENT: 0})
    assert due(alerts, 1000, {SILENT: 0}) == "", "told already"
    assert due(alerts, 1001, {}) == "", "it may come back"
    assert due(alerts, 1030, {SILENT: 0}) == due(alerts, 1040, {}) == due(alerts, 1099, {}) == ""
    over = due(alerts, 1100, {})
    assert "1 problem over\nOver: [power] no report has come" in over
    assert "look at the devices" not in over, "what is over needs no advice"
    assert due(alerts, 5000, {}) == ""


def test_a_problem_that_is_over_within_the_wait_is_not_sent() -> None:
    alerts = Alerts(60.0)
    assert [due(alerts, ticks, {SILENT: 0} if ticks < 50 else {}) for ticks in range(0, 300, 10)] == [""] * 30


def test_problems_are_grouped_and_messages_kept_apart() -> None:
    alerts = Alerts(60.0)
    many: dict[Problem, int] = {(f"c{n:02d}", "failed"): 0 for n in range(20)}
    sent = [due(alerts, ticks, dict(list(many.items())[: ticks + 1])) for ticks in range(200)]
    assert [message.count("Problem:") for message in sent if message] == [1, 19]


def test_an_end_is_told_again_when_it_is_near_and_its_change_is_no_end() -> None:
    alerts = Alerts(0.0)
    sent = [due(alerts, ticks, lasting) for ticks, lasting in enumerate([{ENDS: -60}, {ENDS: -60}, {ENDS: -7}, {}])]
    assert [message.partition("\n")[0] for message in sent] == [
        "Undertone: 1 new problem", "", "Undertone: 1 new problem", "Undertone: 1 problem over",
    ]  # fmt: skip


def test_a_momentary_alarm_is_counted_and_repeated_once_an_hour_at_most() -> None:
    alerts = Alerts(0.0)
    sent = {ticks: due(alerts, ticks, {}, {CONFLICT: 2, ("power", "silent"): 1}) for ticks in range(0, 7300, 100)}
    told = {ticks: message for ticks, message in sent.items() if message}
    assert list(told) == [0, 3600, 7200]
    assert "(2 times)" in told[0]
    assert "(72 times)" in told[3600]
    assert not any("no report" in message for message in told.values()), (
        "silence lasts, so it is told as a lasting problem and not as an event"
    )


def test_failures_are_retried_at_growing_intervals_with_what_is_true_then() -> None:
    alerts, attempts = Alerts(0.0), []
    for ticks in range(20_000):
        alerts.note({SILENT: 0} if ticks < 15_000 else {("", "broker"): 0}, {}, ticks, ticks)
        message = alerts.message(ticks)
        if message is not None:
            attempts.append((ticks, message.body))
            alerts.failed(ticks)
    times = [ticks for ticks, _ in attempts]
    assert [later - earlier for earlier, later in itertools.pairwise(times)] == [
        30, 60, 120, 240, 480, 960, 1920, 3600, 3600, 3600, 3600,
    ]  # fmt: skip
    assert "no report" in attempts[0][1]
    assert "no report" not in attempts[-1][1], "that is over, and was never sent"
    assert "broker" in attempts[-1][1]


def test_a_restart_neither_repeats_a_message_nor_forgets_an_end() -> None:
    first = Alerts(60.0)
    due(first, 0, {SILENT: 0})
    due(first, 60, {SILENT: 0})
    assert due(Alerts(60.0, dict(first.sent)), 900, {SILENT: 0}) == ""
    second = Alerts(60.0, dict(first.sent))
    due(second, 900, {})
    assert "1 problem over" in due(second, 960, {})


def test_it_finds_the_problems_of_the_server_and_of_its_campaigns() -> None:
    year = CampaignState(RUNNING, ready=True, due=0, end=365 * DAY, signed=True)
    campaigns = {
        "fine": year,
        "unsigned": CampaignState(RUNNING, ready=True, due=0, end=365 * DAY, signed=False),
        "failed": CampaignState(FAILED, "/home/x/groups.csv has a device power-0007 twice"),
        "over": CampaignState(OVER, ready=True, due=0, end=10),
        "silent": year,
    }
    campaigns["retired"] = CampaignState(RETIRED, ready=True, due=0, end=365 * DAY, signed=False)
    campaigns["full"] = CampaignState(RUNNING, "no space", due=0, full=True)
    seen = {"silent": {"silent", "disk"}, "fine": {"disk"}}
    state = ServerState(0.0, 0.0, False, 1 << 30, campaigns, by_files(1024), turned_away=3)
    common = {("", "broker"): 0, ("", "disk"): 0, ("", "crowd"): 0}
    own = {("unsigned", "unsigned"): 0, ("failed", "failed"): 0, ("over", "ended"): 0, ("silent", "silent"): 0}
    own |= {("full", "full"): 0}
    assert lasting_problems(state, seen, 1.0) == {**common, **own}
    ending = {("fine", "ends"): -60, ("silent", "ends"): -60, ("unsigned", "ends"): -60}
    assert lasting_problems(state, seen, 310 * DAY) == {**common, **own, ("", "hangs"): 0, **ending}
    assert lasting_problems(state, seen, 360 * DAY)["fine", "ends"] == -7


class Hook:
    """A web hook on the loopback address.

    ``answer``: its status; ``received``: the bodies that it answered with 200. It answers while ``open`` is set.
    """

    def __init__(self) -> None:
        self.received: list[dict[str, Any]] = []
        self.attempts = 0
        self.answer = 200
        self.open = threading.Event()
        self.open.set()
        hook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                hook.attempts += 1
                hook.open.wait(60)
                if hook.answer == 200:
                    hook.received.append(body)
                self.send_response(hook.answer)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._http.serve_forever)
        self._thread.start()
        self.url = f"json://user:s3cret@127.0.0.1:{self._http.server_address[1]}/?rto=60"

    def end(self) -> None:
        self.open.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


@pytest.fixture
def hook() -> Iterator[Hook]:
    try:
        import apprise  # noqa: F401
    except ModuleNotFoundError:
        unavailable("needs Apprise: pip install 'undertone-ldp[alerts]'")
    made = Hook()
    yield made
    made.end()


@pytest.fixture
def folder(tmp_path: Path, free_port: Callable[[], int], hook: Hook) -> Path:
    write_home(tmp_path, free_port(), prefix="undertone-test/alerts")
    Home(tmp_path).write_plan("power", PLAN.format(name="power", epsilon=1))
    settings = tmp_path / "server.toml"
    text = settings.read_text(encoding="utf-8")
    assert text.count("[server]") <= 1
    options = '[server]\nalerts = "alerts.urls"\nalert_seconds = 0\n'
    settings.write_text(
        text.replace("[server]\n", options) if "[server]" in text else f"{text}\n{options}", encoding="utf-8"
    )
    write_urls(tmp_path, hook.url)
    return tmp_path


def write_urls(folder: Path, *urls: str) -> None:
    file = folder / "alerts.urls"
    file.write_text("# where alerts go\n" + "\n".join(urls) + "\n", encoding="utf-8")
    file.chmod(0o600)


@pytest.mark.slow
@pytest.mark.waits
def test_a_server_tells_a_web_hook_of_a_campaign_that_fails_and_of_its_end(folder: Path, hook: Hook) -> None:
    """The hook does not answer at first, and campaigns go on meanwhile."""
    hook.open.clear()
    running = Running(folder)
    try:
        wait_for(lambda: hook.attempts > 0, what="an alert on its way")
        Home(folder).write_plan("water", PLAN.format(name="water", epsilon=1))
        wait_for(lambda: running.healthy() and running.ready("power", "water"), what="campaigns ready")
        assert hook.received == [], "the hook still hangs"
        hook.open.set()
        Home(folder).write_plan("gas", "this is no plan, and the number 4711 is no business of the hook's")
        wait_for(lambda: any("[gas]" in body["message"] for body in hook.received), what="the failure")
        Home(folder).remove("gas")
        wait_for(lambda: any("Over: [gas]" in body["message"] for body in hook.received), what="its end")
    finally:
        running.end()
    raised = next(body for body in hook.received if "[gas]" in body["message"])
    assert "Problem: [gas] the campaign does not run" in raised["message"]
    assert raised["type"] == "failure"
    assert not any("4711" in json.dumps(body) for body in hook.received)
    assert "s3cret" not in running.log.getvalue()


def test_a_hook_that_refuses_is_named_in_the_log_without_its_address(folder: Path, hook: Hook) -> None:
    hook.answer = 500
    running = Running(folder)
    try:
        wait_for(lambda: "alert cannot be sent to JSON in line 2" in running.log.getvalue(), what="a line in the log")
    finally:
        running.end()
    assert "s3cret" not in running.log.getvalue()


def test_doctor_sends_a_test_message_to_a_hook_and_by_mail(folder: Path, hook: Hook, free_port: Any) -> None:
    try:
        from aiosmtpd.controller import Controller
        from aiosmtpd.smtp import SMTP
    except ModuleNotFoundError:
        unavailable("needs aiosmtpd: pip install ./device '.[dev]'")
    mails: list[bytes] = []

    class Mailbox:
        async def handle_DATA(self, _server: object, _session: object, envelope: Any) -> str:
            mails.append(envelope.content)
            return "250 OK"

    begun, ended = [], []

    class Session(SMTP):
        def connection_made(self, transport: Any) -> None:
            begun.append(self)
            super().connection_made(transport)

        def connection_lost(self, error: Exception | None) -> None:
            super().connection_lost(error)
            ended.append(self)

    class Server(Controller):
        def factory(self) -> SMTP:
            return Session(self.handler, **self.SMTP_kwargs)

    mailbox = Server(Mailbox(), hostname="127.0.0.1", port=free_port())
    mailbox.start()
    try:
        mail = f"mailto://127.0.0.1:{mailbox.port}?mode=insecure&from=undertone@example.org&to=operator@example.org"
        write_urls(folder, hook.url, mail)
        done = undertone("doctor", str(folder), "--alert-test", "--json")
        # The server is stopped after this wait. A connection that was still opening or closing would leave its socket
        # open.
        wait_for(lambda: mails and len(ended) == len(begun), what="the end of the mail's connection")
    finally:
        mailbox.stop()
    found = [row for row in json.loads(done.stdout) if row["check"] == "alerts"]
    assert [row["result"] for row in found] == ["ok", "ok"], done.stdout
    assert [body["title"] for body in hook.received] == ["Undertone: test"]
    assert len(mails) == 1
    assert b"nothing is wrong" in mails[0]


@pytest.mark.parametrize(
    ("urls", "mode", "expected"),
    [
        ("nonsense://s3cret", 0o600, "line 1"),
        ("json://x/s3cret", 0o644, "0644, expected 0600"),
        ("# nothing\n \n  # s3cret", 0o600, "has no address"),
    ],
)
def test_a_bad_file_of_addresses_is_refused_without_showing_them(
    tmp_path: Path, hook: Hook, urls: str, mode: int, expected: str
) -> None:
    file = tmp_path / "alerts.urls"
    file.write_text(urls, encoding="utf-8")
    file.chmod(mode)
    with pytest.raises(Invalid) as refused:
        read_addresses(file)
    assert expected in str(refused.value)
    assert "s3cret" not in str(refused.value)
