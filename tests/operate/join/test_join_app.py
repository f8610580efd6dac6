"""The HTTP API through which people join, called without a socket."""

import asyncio
import json
import logging
import secrets
from typing import Any

import httpx
import pytest

from undertone_operate.fleet.join_codes import code_text
from undertone_operate.join import app as join_app
from undertone_operate.join.app import EACH_NETWORK, TOGETHER, make_app
from undertone_operate.join.joining import REVOKED, USED, Joining, JoinRefused, Redemption
from undertone_operate.join.pages import JoinPage, JoinPages
from undertone_operate.join.rate_limit import Rate, RateLimit
from undertone_operate.join.words import REFUSALS
from undertone_shared.errors import Invalid

CODE = bytes(range(16))
OFFER = {"campaign": "power"}
REPLY = {"device": "power-001", "files": {"password": "secret-of-the-device"}}


class Fake(Joining):
    """Codes in memory, of which one is known. Each call raises ``error``, if set; ``redeem`` returns a JoinRefused."""

    def __init__(self) -> None:
        self.asked: list[Redemption] = []
        self.error: Exception | None = None

    def offer(self, code):
        self._check(code)
        return OFFER

    def redeem(self, asked):
        self.asked += asked
        return [self._reply(each) for each in asked]

    def leave(self, asked):
        self._check(asked.code)
        return {"device": "power-001"}

    def _reply(self, asked):
        try:
            self._check(asked.code)
        except JoinRefused as refusal:
            return refusal
        return REPLY

    def _check(self, code):
        if self.error is not None:
            raise self.error
        if code != CODE:
            raise JoinRefused("unknown")


class Site:
    """The application. ``log`` is what it has logged, and ``now`` is its clock."""

    def __init__(self) -> None:
        self.now = 0.0
        self.codes = Fake()
        self.log: list[str] = []
        limit = RateLimit(EACH_NETWORK, TOGETHER, lambda: self.now)
        self.authority: str | None = None
        self.app = make_app(self.codes, authority=lambda: self.authority, say=self.log.append, limit=limit)

    def ask(self, method: str, path: str, address: str = "192.0.2.1", **options: Any) -> httpx.Response:
        async def send() -> httpx.Response:
            transport = httpx.ASGITransport(self.app, client=(address, 1), raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url="https://join.example") as client:
                return await client.request(method, path, **options)

        return asyncio.run(send())

    def post(self, what: str, body: Any, address: str = "192.0.2.1") -> httpx.Response:
        return self.ask("POST", f"/api/join/{what}", address, json=body)


@pytest.fixture
def site():
    return Site()


def body(code: bytes = CODE) -> dict[str, str]:
    return {"code": code_text(code), "key": secrets.token_hex(32)}


def test_an_offer_and_a_redemption(site):
    answer = site.post("offer", {"code": code_text(CODE).lower()})
    assert (answer.status_code, answer.json()) == (200, OFFER)
    asked = body()
    answer = site.post("redeem", asked)
    assert (answer.status_code, answer.json()) == (200, REPLY)
    assert answer.headers["cache-control"] == "no-store"
    assert site.codes.asked == [Redemption(CODE, bytes.fromhex(asked["key"]))]
    assert site.log == ["power-001 has joined"]


def test_leaving(site):
    answer = site.post("leave", body())
    assert (answer.status_code, answer.json()) == (200, {"device": "power-001"})
    assert site.log == ["power-001 has left the campaign"]
    assert site.post("leave", {"code": code_text(CODE)}).status_code == 422
    assert site.post("leave", body(bytes(16))).status_code == 404


def test_sentences_are_in_the_clients_language(site):
    german = {"headers": {"accept-language": "de-DE, en;q=0.5"}}
    for what, wrong in (("offer", {"code": code_text(bytes(16))}), ("redeem", body(bytes(16)))):
        answer = site.ask("POST", f"/api/join/{what}", json=wrong, **german).json()
        assert answer == {"reason": "unknown", "error": REFUSALS["de"]["unknown"]}


@pytest.mark.parametrize(("reason", "status"), [(USED, 409), (REVOKED, 410), ("expired", 410), ("unknown", 404)])
def test_a_refusal_has_its_status_and_reason(site, reason, status):
    site.codes.error = JoinRefused(reason)
    for what in ("offer", "redeem"):
        answer = site.post(what, body() if what == "redeem" else {"code": code_text(CODE)})
        assert (answer.status_code, answer.json()["reason"]) == (status, reason)


@pytest.mark.parametrize(
    "wrong",
    [
        None,
        [],
        {},
        {"code": code_text(CODE)},
        {**body(), "device": "power-001"},
        {**body(), "key": "00"},
        {**body(), "key": 7},
        {**body(), "key": "g" * 64},
        {**body(), "key": "é" * 64},
        {**body(), "code": "../../etc/passwd"},
        {**body(), "code": {"code": 1}},
    ],
)
def test_an_invalid_request_is_refused_without_its_values(site, wrong):
    answer = site.post("redeem", wrong)
    assert (answer.status_code, answer.json()["reason"]) == (422, "invalid")
    assert code_text(CODE)[:9] not in answer.text
    assert site.codes.asked == []


def test_a_body_that_is_no_json_or_too_large_is_refused(site):
    for content in (b"", b"{", b"\xff", b"[" * 900, b" " * 2000, b'{"a": ' + b"9" * 900):
        answer = site.ask("POST", "/api/join/offer", content=content)
        assert (answer.status_code, answer.json()["reason"]) == (422, "invalid")


def test_a_body_that_comes_too_slowly_is_refused(site, monkeypatch):
    monkeypatch.setattr(join_app, "_BODY_SECONDS", 0.01)

    async def send():
        messages = iter([{"type": "http.request", "body": b"{", "more_body": True}])
        sent = []

        async def receive():
            for message in messages:
                return message
            return await asyncio.Event().wait()

        async def keep(message):
            sent.append(message)

        scope = {"type": "http", "method": "POST", "path": "/api/join/offer", "headers": [], "query_string": b"",
                 "client": ("192.0.2.1", 1), "root_path": "", "scheme": "https", "http_version": "1.1"}  # fmt: skip
        await site.app(scope, receive, keep)
        return sent

    sent = asyncio.run(send())
    assert sent[0]["status"] == 422


def test_guesses_of_one_network_are_slowed_down_and_no_other(site):
    answers = [site.post("offer", {"code": code_text(secrets.token_bytes(16))}) for _ in range(12)]
    assert [answer.status_code for answer in answers] == [404] * 10 + [429] * 2
    assert int(answers[-1].headers["retry-after"]) >= 1
    assert site.post("offer", {"code": code_text(CODE)}).status_code == 429
    assert site.post("offer", {"code": code_text(CODE)}, "192.0.2.2").status_code == 200
    site.now += int(answers[-1].headers["retry-after"])
    assert site.post("offer", {"code": code_text(CODE)}).status_code == 200


@pytest.mark.slow
def test_requests_under_way_are_counted_and_one_network_stops_no_other(site):
    """One network begins 900 requests. The last byte of each body is held back until all have begun."""
    many = 900
    begun = 0

    async def ask(client: httpx.AsyncClient) -> int:
        async def slowly():
            nonlocal begun
            text = json.dumps({"code": code_text(secrets.token_bytes(16))}).encode()
            yield text[:-1]
            begun += 1
            while begun < many:
                await asyncio.sleep(0)
            yield text[-1:]

        return (await client.post("/api/join/offer", content=slowly())).status_code

    async def send() -> list[int]:
        transport = httpx.ASGITransport(site.app, client=("192.0.2.1", 1))
        async with httpx.AsyncClient(transport=transport, base_url="https://join.example") as client:
            return await asyncio.gather(*(ask(client) for _ in range(many)))

    assert set(asyncio.run(send())) == {404}
    for number in range(100):
        assert site.post("offer", {"code": code_text(CODE)}, f"198.51.100.{number}").status_code == 200
    # The network itself has to wait, but no longer than until its own allowance of requests is full again.
    answer = site.post("offer", {"code": code_text(CODE)})
    assert answer.status_code == 429
    assert int(answer.headers["retry-after"]) <= (EACH_NETWORK.burst + 1) / EACH_NETWORK.per_second + 1
    site.now += int(answer.headers["retry-after"])
    assert site.post("offer", {"code": code_text(CODE)}).status_code == 200


def test_a_limit_is_reserved_before_the_body():
    """A network may begin only so many requests at once, even while none of them has ended."""
    limit = RateLimit(Rate(3, 1), Rate(100, 1), lambda: 0.0)
    assert [limit.admit("192.0.2.1") for _ in range(5)] == [0, 0, 0, 1, 1]
    assert limit.admit("192.0.2.2") == 0
    limit.charge("192.0.2.1", 10**9)
    assert limit.admit("192.0.2.1") == 4
    assert limit.admit("192.0.2.2") == 0


def test_guesses_of_many_networks_are_slowed_down_together(site):
    for number in range(100):
        assert site.post("offer", {"code": code_text(secrets.token_bytes(16))}, f"10.0.{number}.1").status_code == 404
    assert site.post("offer", {"code": code_text(secrets.token_bytes(16))}, "10.1.0.1").status_code == 429
    site.now += 10
    assert site.post("offer", {"code": code_text(CODE)}, "10.1.0.1").status_code == 200


def test_addresses_of_one_ipv6_network_count_together(site):
    for number in range(10):
        site.post("offer", {"code": code_text(secrets.token_bytes(16))}, f"2001:db8::{number}")
    assert site.post("offer", {"code": code_text(CODE)}, "2001:db8::ffff").status_code == 429
    assert site.post("offer", {"code": code_text(CODE)}, "2001:db8:0:1::1").status_code == 200


@pytest.mark.parametrize("error", [Invalid("the plan is damaged"), OSError(28, "No space left on device")])
def test_a_server_that_cannot_answer_asks_to_come_back(site, error):
    site.codes.error = error
    for what in ("offer", "redeem"):
        answer = site.post(what, body() if what == "redeem" else {"code": code_text(CODE)})
        assert (answer.status_code, answer.json()["reason"]) == (503, "unavailable")
        assert str(error) not in answer.text
    site.codes.error = None
    assert site.post("redeem", body()).status_code == 200


def test_no_log_holds_a_code_or_a_secret(site, caplog):
    caplog.set_level(logging.DEBUG)
    asked = body()
    site.post("redeem", asked)
    site.codes.error = RuntimeError("a fault of the program")
    assert site.post("redeem", asked).status_code == 500
    written = "\n".join([*site.log, caplog.text])
    for secret in (asked["code"], asked["key"], "secret-of-the-device"):
        assert secret not in written


def test_no_log_holds_an_address(site, caplog):
    """docs/privacy.md promises that no log has an address."""
    caplog.set_level(logging.DEBUG)
    assert 429 in [site.post("offer", {"code": code_text(secrets.token_bytes(16))}).status_code for _ in range(12)]
    site.codes.error = RuntimeError("a fault of the program")
    assert site.post("redeem", body(), "192.0.2.2").status_code == 500
    written = "\n".join([*site.log, caplog.text])
    assert caplog.text
    assert "192.0.2." not in written


def test_the_page_and_its_headers(site):
    answer = site.ask("GET", "/join", follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (308, "/join/")
    answer = site.ask("GET", "/join/")
    assert answer.status_code == 200
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
    assert site.ask("GET", "/join/../../server.toml").status_code == 404
    assert site.ask("GET", "/join/%2e%2e/server.toml").status_code == 404
    assert site.ask("GET", "/api/join/redeem").status_code == 405


def test_a_browser_gets_each_page_compressed_and_only_once(site):
    page = JoinPage.of("text/html; charset=utf-8", b"<p>" + 1000 * b"x")
    site.app = make_app(site.codes, JoinPages({"": page, "app.js": JoinPage.of("text/javascript", b"1")}, "policy"))
    answer = site.ask("GET", "/join/", headers={"accept-encoding": "gzip"})
    assert answer.content == page.content
    assert int(answer.headers["content-length"]) < 100
    assert answer.headers["content-security-policy"] == "policy"
    again = site.ask("GET", "/join/", headers={"if-none-match": answer.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    plain = site.ask("GET", "/join/app.js", headers={"accept-encoding": "identity"})
    assert (plain.content, plain.headers["content-type"]) == (b"1", "text/javascript; charset=utf-8")
    assert plain.headers["etag"] != answer.headers["etag"]


def test_the_description_names_what_the_api_answers(site):
    described = site.ask("GET", "/api/join/openapi.json").json()
    assert sorted(described["paths"]) == [f"/api/join/{name}" for name in ("ca.crt", "leave", "offer", "redeem")]
    assert json.dumps(described)


def test_the_authority_is_there_if_it_issued_the_certificate(site):
    assert site.ask("GET", "/api/join/ca.crt").status_code == 404
    site.authority = "the certificate"
    answer = site.ask("GET", "/api/join/ca.crt")
    assert (answer.status_code, answer.text, answer.headers["content-type"]) == (
        200,
        "the certificate",
        "application/x-pem-file",
    )
