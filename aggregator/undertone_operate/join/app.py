"""The HTTP application at which people join: the offer of a code, its redemption, and the phone's web app."""

import asyncio
import contextlib
import math
import queue
import threading
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from typing import Any

import anyio.to_thread
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from undertone_aggregator.web.application import application, client_address, json_object
from undertone_operate.fleet.join_codes import EXPIRED, REVOKED, parse_code
from undertone_operate.join.joining import (
    INVALID,
    SLOW_DOWN,
    UNAVAILABLE,
    UNKNOWN,
    USED,
    Joining,
    JoinRefused,
    Redemption,
)
from undertone_operate.join.openapi import AUTHORITY_PATH, PATH, document
from undertone_operate.join.pages import PLAIN, JoinPages
from undertone_operate.join.rate_limit import Rate, RateLimit
from undertone_operate.join.words import language_of
from undertone_shared.errors import Invalid

STATUS = {UNKNOWN: 404, EXPIRED: 410, USED: 409, REVOKED: 410, SLOW_DOWN: 429, INVALID: 422, UNAVAILABLE: 503}
# The limits of one network, and of all together. Two thousand devices behind one address, as in a large house, may join
# at once. About ten codes that do not exist may be tried, because each costs `_UNKNOWN_COST` tokens.
EACH_NETWORK = Rate(burst=2000, per_second=10)
TOGETHER = Rate(burst=20_000, per_second=100)
_UNKNOWN_COST = 200
_LARGEST_BODY = 1024
_BODY_SECONDS = 10.0
# Seconds after which a client should try again if the server was busy or could not answer.
_BUSY_SECONDS = 10.0
# Largest number of redemptions that wait for their batch. The server asks further clients to try again later.
_LONGEST_QUEUE = 4096
_LARGEST_BATCH = 500

Reply = dict[str, Any] | JoinRefused


class RedeemQueue:
    """A thread that redeems codes in batches. A batch has up to `_LARGEST_BATCH` of the waiting codes, and costs
    little more than one code.
    """

    def __init__(self, joining: Joining) -> None:
        self._joining = joining
        self._waiting: queue.Queue[tuple[Redemption, Future[Reply]] | None] = queue.Queue(_LONGEST_QUEUE)
        self._thread = threading.Thread(target=self._work, name="redeem", daemon=True)
        self._thread.start()

    def put(self, asked: Redemption) -> "Future[Reply]":
        """Have a code redeemed. Raises JoinRefused if too many codes are waiting already."""
        answer: Future[Reply] = Future()
        try:
            self._waiting.put_nowait((asked, answer))
        except queue.Full:
            raise JoinRefused(SLOW_DOWN) from None
        return answer

    def close(self) -> None:
        """Redeem what waits, and end the thread."""
        self._waiting.put(None)
        self._thread.join()

    def _work(self) -> None:
        ends = False
        while not ends:
            batch = [self._waiting.get()]
            while len(batch) < _LARGEST_BATCH and not self._waiting.empty():
                batch.append(self._waiting.get())
            ends = None in batch
            # A request whose client has gone is cancelled if it still waits, but not once its answer is being made.
            waiting = [each for each in batch if each is not None and each[1].set_running_or_notify_cancel()]
            if waiting:
                self._redeem(waiting)

    def _redeem(self, batch: list[tuple[Redemption, "Future[Reply]"]]) -> None:
        try:
            replies = self._joining.redeem([asked for asked, _ in batch])
        except Exception as wrong:
            for _, answer in batch:
                answer.set_exception(wrong)
            return
        for (_, answer), reply in zip(batch, replies, strict=True):
            answer.set_result(reply)


class JoinRoutes:
    """The routes over one server's codes. ``say``: logs a sentence, which never contains a code or a secret."""

    def __init__(self, joining: Joining, redeem: RedeemQueue, limit: RateLimit, say: Callable[[str], None]) -> None:
        self._joining = joining
        self._redeem = redeem
        self._limit = limit
        self._say = say

    async def offer(self, request: Request) -> Response:
        """Return the offer of a code."""

        async def answer(body: dict[str, Any]) -> dict[str, Any]:
            code = _code(body, ("code",))
            return await anyio.to_thread.run_sync(self._joining.offer, code)

        return await self._answer(request, answer)

    async def redeem(self, request: Request) -> Response:
        """Redeem a code with a key, and return the device's files."""

        async def answer(body: dict[str, Any]) -> dict[str, Any]:
            _code(body, ("code", "key"))
            reply = await asyncio.wrap_future(self._redeem.put(_redemption(body)))
            if isinstance(reply, JoinRefused):
                raise reply
            self._say(f"{reply['device']} has joined")
            return reply

        return await self._answer(request, answer)

    async def leave(self, request: Request) -> Response:
        """Revoke the device that joined with a code and a key, because its owner leaves."""

        async def answer(body: dict[str, Any]) -> dict[str, Any]:
            _code(body, ("code", "key"))
            gone = await anyio.to_thread.run_sync(self._joining.leave, _redemption(body))
            self._say(f"{gone['device']} has left the campaign")
            return gone

        return await self._answer(request, answer)

    async def openapi(self, request: Request) -> Response:
        """Return the API's OpenAPI description."""
        return JSONResponse(document())

    async def _answer(self, request: Request, answer: Callable[[dict[str, Any]], Any]) -> Response:
        address, language = client_address(request), _language(request)
        wait = self._limit.admit(address)
        if wait > 0:
            return refusal_response(JoinRefused(SLOW_DOWN), wait, language)
        try:
            return JSONResponse(await answer(await _body(request)), headers={"cache-control": "no-store"})
        except JoinRefused as refused:
            if refused.reason == UNKNOWN:
                self._limit.charge(address, _UNKNOWN_COST - 1)
            return refusal_response(refused, _BUSY_SECONDS, language)
        except (Invalid, OSError) as wrong:
            self._say(f"alarm: a request with a join code could not be answered: {wrong}")
            return refusal_response(JoinRefused(UNAVAILABLE), _BUSY_SECONDS, language)


def refusal_response(refused: JoinRefused, wait: float, language: str) -> Response:
    """Return the HTTP response of a refusal. ``wait``: seconds until another try, if another try makes sense."""
    headers = {"cache-control": "no-store"}
    if refused.reason in (SLOW_DOWN, UNAVAILABLE):
        headers["retry-after"] = str(max(1, math.ceil(wait)))
    fields = {"reason": refused.reason, "error": refused.sentence(language)}
    return JSONResponse(fields, status_code=STATUS[refused.reason], headers=headers)


def make_app(
    joining: Joining,
    pages: JoinPages | None = None,
    *,
    authority: Callable[[], str | None] = lambda: None,
    say: Callable[[str], None] = lambda sentence: None,
    limit: RateLimit | None = None,
) -> Starlette:
    """Make the application. Without ``pages``, `/join/` explains what to do with a code.

    ``authority`` returns the certificate (PEM) of the private authority that issued the listener's certificate, if any.
    """
    redeem, pages = RedeemQueue(joining), pages or PLAIN
    routes = JoinRoutes(joining, redeem, limit or RateLimit(EACH_NETWORK, TOGETHER, time.monotonic), say)

    async def page(request: Request) -> Response:
        found = pages.files.get(request.path_params["path"])
        if found is None:
            raise HTTPException(404, "there is no such page here")
        headers = {"cache-control": "no-cache", "etag": found.etag, "vary": "accept-encoding"}
        if request.headers.get("if-none-match") == found.etag:
            return Response(status_code=304, headers=headers)
        if "gzip" not in request.headers.get("accept-encoding", ""):
            return Response(found.content, media_type=found.media_type, headers=headers)
        headers["content-encoding"] = "gzip"
        return Response(found.compressed, media_type=found.media_type, headers=headers)

    async def redirect(request: Request) -> Response:
        # The browser keeps the fragment of the address, which contains the code.
        return RedirectResponse("/join/", status_code=308)

    async def trusted(request: Request) -> Response:
        text = authority()
        if text is None:
            raise HTTPException(404, "no authority of this server has issued the listener's certificate")
        return Response(text, media_type="application/x-pem-file", headers={"cache-control": "no-cache"})

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        yield
        await anyio.to_thread.run_sync(redeem.close)

    return application(
        [
            Route("/api/join/offer", routes.offer, methods=["POST"]),
            Route("/api/join/redeem", routes.redeem, methods=["POST"]),
            Route("/api/join/leave", routes.leave, methods=["POST"]),
            Route(AUTHORITY_PATH, trusted),
            Route(PATH, routes.openapi),
            Route("/join", redirect),
            Route("/join/{path:path}", page),
        ],
        pages.policy,
        lifespan,
    )


def _language(request: Request) -> str:
    return language_of(request.headers.get("accept-language", ""))


async def _body(request: Request) -> dict[str, Any]:
    """Return the request's JSON object. Raises JoinRefused for anything else, and for a body that comes too slowly."""
    try:
        async with asyncio.timeout(_BODY_SECONDS):
            return await json_object(request, _LARGEST_BODY)
    except TimeoutError:
        raise JoinRefused(INVALID, detail=f"the request's body did not arrive within {_BODY_SECONDS:.0f} s") from None
    except HTTPException as wrong:
        raise JoinRefused(INVALID, detail=wrong.detail) from None


def _code(body: dict[str, Any], names: tuple[str, ...]) -> bytes:
    """Return the code in a body that has exactly these fields. Raises JoinRefused, whose text leaves out the body's
    values.
    """
    if sorted(body) != sorted(names):
        raise JoinRefused(INVALID, detail=f"the body has the wrong fields, expected exactly {', '.join(names)}")
    try:
        return parse_code(body["code"])
    except Invalid as wrong:
        raise JoinRefused(INVALID, detail=str(wrong)) from None


def _redemption(body: dict[str, Any]) -> Redemption:
    try:
        return Redemption.parse(body["code"], body["key"])
    except Invalid as wrong:
        raise JoinRefused(INVALID, detail=str(wrong)) from None
