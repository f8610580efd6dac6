"""What the page's and the joining's HTTP applications share: security headers on each response, refusals as JSON
sentences, limits on the size of a request's body.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, ExceptionHandler, Message, Receive, Scope, Send


def application(
    routes: Sequence[BaseRoute],
    policy: str,
    lifespan: Callable[[Starlette], Any],
    *,
    middleware: Sequence[Middleware] = (),
    errors: Mapping[type[Exception], ExceptionHandler] | None = None,
) -> Starlette:
    """Make an application. ``policy``: the Content-Security-Policy of all its responses.

    The response to an HTTPException is ``{"error": sentence}``. ``errors``: handlers of further exceptions.
    """
    return Starlette(
        routes=routes,
        middleware=[Middleware(SafeHeaders, policy=policy), *middleware],
        exception_handlers={HTTPException: _refused, Exception: _failed, **(errors or {})},
        lifespan=lifespan,
    )


class SafeHeaders:
    """Middleware that adds the security headers to every response. ``policy``: the Content-Security-Policy."""

    def __init__(self, app: ASGIApp, policy: str) -> None:
        self._app = app
        self._headers = [
            (b"content-security-policy", policy.encode()),
            (b"x-content-type-options", b"nosniff"),
            (b"referrer-policy", b"no-referrer"),
            (b"cross-origin-opener-policy", b"same-origin"),
            (b"cross-origin-resource-policy", b"same-origin"),
        ]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *self._headers]
            await send(message)

        await self._app(scope, receive, with_headers)


def openapi(title: str, description: str, paths: Mapping[str, Any]) -> dict[str, Any]:
    """Return the OpenAPI 3.1 description of an application's API, from which programs can generate clients."""
    return {"openapi": "3.1.0", "info": {"title": title, "version": "1", "description": description}, "paths": paths}


def client_address(request: Request) -> str:
    """Return the address that a request comes from. Behind a trusted proxy, uvicorn has replaced it by the client's
    address.
    """
    return "" if request.client is None else request.client.host


async def json_object(request: Request, most: int) -> dict[str, Any]:
    """Return the JSON object in a request's body; an empty body is an empty object.

    Raises HTTPException for anything else, and for a body of more than ``most`` bytes.
    """
    data = b""
    async for chunk in request.stream():
        data += chunk
        if len(data) > most:
            raise HTTPException(413, f"the body is too large, expected at most {most} bytes")
    try:
        value = json.loads(data or b"{}")
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise HTTPException(400, "the body is not a JSON object")
    return value


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": error.detail}, status_code=error.status_code, headers=error.headers)


async def _failed(request: Request, error: Exception) -> Response:
    return PlainTextResponse("the server could not answer; its log says why", status_code=500)
