"""The web application: the page, its files, the API, live updates, and, for users with a token, actions."""

import json
from collections.abc import Awaitable, Callable, Iterable
from importlib.resources import files
from pathlib import Path
from typing import Any

import anyio.to_thread
from sse_starlette.event import ServerSentEvent
from sse_starlette.sse import EventSourceResponse
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from undertone_aggregator.estimate.against import EXPECTED, Against
from undertone_aggregator.estimate.estimates import Estimate
from undertone_aggregator.estimate.formats import format_of
from undertone_aggregator.estimate.losses import SlotLosses, SlotRefusals
from undertone_aggregator.estimate.public import PublicResults
from undertone_aggregator.estimate.remote import facts_of
from undertone_aggregator.estimate.selection import Hours, OnDays
from undertone_aggregator.web import api
from undertone_aggregator.web.answers import Answers
from undertone_aggregator.web.application import application, client_address, json_object
from undertone_aggregator.web.guides import guide, picture
from undertone_aggregator.web.hosts import KnownHosts
from undertone_aggregator.web.live import Full, Live
from undertone_aggregator.web.login import COOKIE, HEADER, SESSION_SECONDS, Logins
from undertone_aggregator.web.openapi import document
from undertone_aggregator.web.quantiles import LARGEST_QUEUE, Busy, QuantileQueue
from undertone_aggregator.web.ready import Ready
from undertone_aggregator.web.site import Site
from undertone_shared.errors import Invalid

STATIC = Path(str(files("undertone_aggregator.web"))) / "static"
_LARGEST_BODY = 4096
# The page loads scripts, styles and pictures only from this server, no site may frame it, and it contacts no other
# host.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self';"
    " base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
_ESTIMATES = ("from", "to", "tz", "group", "filtered")

Endpoint = Callable[[Request], Awaitable[Response]]


class Pages:
    """The HTTP routes over one site."""

    def __init__(self, site: Site, logins: Logins | None) -> None:
        self._site = site
        self._logins = logins
        self._recent: dict[str, api.RecentSlots] = {}
        self._quantiles = QuantileQueue()
        self._answers = Answers()
        self._live = Live(site.mark, self._news)
        self.ready = Ready(site.names, site.mark, self._summary)

    def routes(self) -> list[Route]:
        """Return the routes: path, handler and method."""
        each = "/api/v1/campaigns/{name}"
        return [
            Route("/", self.page),
            Route("/guides/{name}.md", self.guide),
            Route("/guides/{name:path}", self.picture),
            Route("/api/v1/openapi.json", self.openapi),
            Route("/api/v1/campaigns", self.campaigns),
            Route(each, self.campaign),
            Route(f"{each}/facts", self.facts),
            Route(f"{each}/estimates", self.estimates),
            Route(f"{each}/ranges", self.ranges),
            Route(f"{each}/selection", self.selection),
            Route(f"{each}/difference", self.difference),
            Route(f"{each}/losses", self.losses),
            Route(f"{each}/quantiles", self.quantiles),
            Route(f"{each}/epochs", self.epochs),
            Route(f"{each}/events", self.events),
            Route(f"{each}/download", self.download),
            Route(f"{each}/actions/{{action}}", self.act, methods=["POST"]),
            Route("/api/v1/session", self.session, methods=["GET", "POST", "DELETE"]),
        ]

    async def page(self, request: Request) -> Response:
        """Return the page: one file for all campaigns; the URL's fragment names the campaign."""
        return FileResponse(STATIC / "index.html")

    async def guide(self, request: Request) -> Response:
        """Return a guide that the page links to, as HTML."""
        text = await anyio.to_thread.run_sync(guide, request.path_params["name"])
        if text is None:
            raise HTTPException(404, f"there is no guide {request.path_params['name']!r} here")
        return HTMLResponse(text)

    async def picture(self, request: Request) -> Response:
        """Return a picture of a guide."""
        path = picture(request.path_params["name"])
        if path is None:
            raise HTTPException(404, f"there is no picture {request.path_params['name']!r} here")
        return FileResponse(path)

    async def openapi(self, request: Request) -> Response:
        """Return the API's OpenAPI description."""
        return JSONResponse(document())

    async def campaigns(self, request: Request) -> Response:
        """Return the summaries of all campaigns. For a campaign that cannot be read, return the reason instead."""
        api.Parameters(dict(request.query_params), ())

        def all_of_them() -> list[dict[str, Any]]:
            summaries: list[dict[str, Any]] = []
            for name in self._site.names():
                try:
                    summaries.append(self._summary(name))
                except Invalid as error:
                    summaries.append({"name": name, "error": str(error)})
            return summaries

        return JSONResponse({"campaigns": await anyio.to_thread.run_sync(all_of_them)})

    async def campaign(self, request: Request) -> Response:
        """Return one campaign's summary."""
        api.Parameters(dict(request.query_params), ())
        return JSONResponse(await anyio.to_thread.run_sync(self._summary, self._name(request)))

    async def estimates(self, request: Request) -> Response:
        """Return a group's series of estimates."""
        parameters, name = dict(request.query_params), self._name(request)
        query = api.Parameters(parameters, _ESTIMATES)

        def answer(results: PublicResults) -> bytes:
            # New deliveries alone change only the last field of the mark, and not this answer. So the key has the other
            # fields, which change with published numbers and with the settings for reading them.
            key = (name, results.mark[:-1], *sorted(parameters.items()))
            return self._answers.of(key, lambda: bytes(JSONResponse(api.estimates(results, query)).body))

        body = await anyio.to_thread.run_sync(self._site.read, name, answer)
        return Response(body, media_type=JSONResponse.media_type)

    async def quantiles(self, request: Request) -> Response:
        """Return quantiles of the readings over runs of slots."""
        parameters = dict(request.query_params)
        every = api.whole_number("every", parameters.pop("every", None))
        shares = api.shares_of(parameters.pop("shares", None))
        query = api.Parameters(parameters, ("from", "to", "tz", "every", "shares"))
        name = self._name(request)
        asked = await anyio.to_thread.run_sync(
            self._site.read, name, lambda results: api.quantile_runs(results, query, every)
        )
        try:
            # The computation happens outside the campaign's lock, so that other requests do not wait for it.
            rows = await self._quantiles.of(asked[1], shares)
        except Busy:
            raise HTTPException(503, f"{LARGEST_QUEUE} requests for quantiles wait already: ask again later") from None
        return JSONResponse(api.quantiles(asked[0], rows))

    async def ranges(self, request: Request) -> Response:
        """Return means over runs of slots."""
        parameters = dict(request.query_params)
        every = api.whole_number("every", parameters.pop("every", None))
        query = api.Parameters(parameters, ("from", "to", "tz", "group", "every"))
        return await self._read(request, lambda results: api.ranges(results, query, every))

    async def selection(self, request: Request) -> Response:
        """Return the mean of a selection of slots."""
        parameters = dict(request.query_params)
        between, on = parameters.pop("between", None), parameters.pop("days", None)
        hours = None if between is None else Hours.parse("between", between)
        days = None if on is None else OnDays.parse("days", on)
        query = api.Parameters(parameters, ("from", "to", "tz", "group", "by", "between", "days"))
        return await self._read(request, lambda results: api.selection(results, query, hours, days))

    async def difference(self, request: Request) -> Response:
        """Return the mean of a selection of slots minus another mean."""
        parameters = dict(request.query_params)
        if "against" not in parameters:
            raise Invalid(f"against is missing, expected {EXPECTED}")
        against = Against.parse("against", parameters.pop("against"))
        between, on = parameters.pop("between", None), parameters.pop("days", None)
        hours = None if between is None else Hours.parse("between", between)
        days = None if on is None else OnDays.parse("days", on)
        query = api.Parameters(parameters, ("from", "to", "tz", "group", "by", "against", "between", "days"))
        return await self._read(request, lambda results: api.difference(results, query, against, hours, days))

    async def losses(self, request: Request) -> Response:
        """Return a group's reports by slot: those that came, came late, or are missing."""
        query = api.Parameters(dict(request.query_params), ("from", "to", "tz", "group"))
        return await self._read(request, lambda results: api.losses(results, query))

    async def facts(self, request: Request) -> Response:
        """Return the messages of the campaign's epochs and the settings of its estimates, for `undertone.connect`."""
        api.Parameters(dict(request.query_params), ())
        return await self._read(request, facts_of)

    async def epochs(self, request: Request) -> Response:
        """Return the campaign's epochs with their theta."""
        api.Parameters(dict(request.query_params), ())
        return await self._read(request, api.epochs)

    async def events(self, request: Request) -> Response:
        """Stream server-sent events: the campaign's summary whenever something has changed since the response began."""
        name = self._name(request)
        address = client_address(request)
        try:
            self._live.check_room(address)
        except Full as full:
            raise HTTPException(503, str(full)) from None
        await self._live.begin(name)

        async def messages() -> Any:
            try:
                async for message in self._live.listen(name, address):
                    yield message
            except Full:
                return

        return EventSourceResponse(messages(), ping=15)

    async def download(self, request: Request) -> Response:
        """Return the selected slots as a file in one of `formats.FORMATS`: their estimates, losses, or refusals; or
        their means alone as a small CSV file.
        """
        parameters = dict(request.query_params)
        what = parameters.pop("of", Estimate.plural)
        if what not in api.FILES:
            raise Invalid(f"the parameter 'of' is {what!r}, expected {', '.join(api.FILES[:-1])} or {api.FILES[-1]}")
        form = format_of("format", parameters.pop("format", "csv"))
        query = api.Parameters(parameters, (*_ESTIMATES, *(["by"] if what == api.MEANS else []), "format", "of"))
        if what == api.MEANS and form.suffix != "csv":
            raise Invalid(f"format is {form.suffix!r}, expected csv for of={api.MEANS}")
        name = self._name(request)

        def file(results: PublicResults) -> bytes:
            if what == api.MEANS:
                return api.means(results, query)
            first, last = query.span(results)
            if what == SlotLosses.plural:
                return form.write(results, results.losses(first, last, query.group), SlotLosses)
            if what == SlotRefusals.plural:
                return form.write(results, results.refusals(first, last), SlotRefusals)
            rows = results.estimates(first, last, [query.group], filtered=query.filtered, settled=True, absent=True)
            return form.write(results, rows, Estimate)

        body = await anyio.to_thread.run_sync(self._site.read, name, file)
        file_name = f"{name}.{form.suffix}" if what == Estimate.plural else f"{name}-{what}.{form.suffix}"
        headers = {"content-disposition": f'attachment; filename="{file_name}"'}
        return Response(body, media_type=form.media_type, headers=headers)

    async def session(self, request: Request) -> Response:
        """GET: tell whether actions are on and this browser is logged in. POST: log in with the token.

        DELETE: log out.
        """
        if self._logins is None:
            return JSONResponse({"actions": []})
        session = request.cookies.get(COOKIE)
        if request.method == "GET":
            against = self._logins.against(session)
            return JSONResponse({"actions": sorted(self._site.actions()), "token": against})
        self._same_origin(request)
        answer: JSONResponse
        if request.method == "DELETE":
            self._logins.leave(session)
            answer = JSONResponse({"token": None})
            answer.delete_cookie(COOKIE, httponly=True, samesite="strict")
            return answer
        address = client_address(request)
        if self._logins.is_throttled(address):
            raise HTTPException(429, "too many wrong tokens came from your address: wait a minute")
        entered = self._logins.enter(str((await json_object(request, _LARGEST_BODY)).get("token", "")), address)
        if entered is None:
            raise HTTPException(403, "the token is wrong")
        answer = JSONResponse({"actions": sorted(self._site.actions()), "token": entered[1]})
        secure = request.url.scheme == "https" or request.headers.get("x-forwarded-proto") == "https"
        answer.set_cookie(COOKIE, entered[0], max_age=SESSION_SECONDS, httponly=True, samesite="strict", secure=secure)
        return answer

    async def act(self, request: Request) -> Response:
        """Perform an action on a campaign, or on the device that the body names, for a logged-in user."""
        actions = self._site.actions()
        action = request.path_params["action"]
        if self._logins is None or action not in actions:
            raise HTTPException(404, f"there is no action {action!r} here")
        self._same_origin(request)
        if not self._logins.allows(request.cookies.get(COOKIE), request.headers.get(HEADER)):
            raise HTTPException(403, "log in first")
        device = str((await json_object(request, _LARGEST_BODY)).get("device", ""))
        done = await anyio.to_thread.run_sync(actions[action], self._name(request), device)
        return JSONResponse({"done": done})

    def _news(self, name: str) -> bytes:
        return ServerSentEvent(json.dumps(self._summary(name)), event="campaign").encode()

    def _summary(self, name: str) -> dict[str, Any]:
        state = self._site.state(name)

        def made(results: PublicResults) -> dict[str, Any]:
            # `Site.read` holds the campaign's lock while it calls this function, so one thread at a time updates the
            # entry.
            now = self._recent[name] = api.recent(results, self._recent.get(name))
            return api.summary(results, state, now)

        return self._site.read(name, made)

    async def _read(self, request: Request, what: Callable[[PublicResults], dict[str, Any]]) -> Response:
        return JSONResponse(await anyio.to_thread.run_sync(self._site.read, self._name(request), what))

    def _name(self, request: Request) -> str:
        name: str = request.path_params["name"]
        if name not in self._site.names():
            raise HTTPException(404, f"there is no campaign {name!r} here")
        return name

    @staticmethod
    def _same_origin(request: Request) -> None:
        # Browsers state in Sec-Fetch-Site where a request comes from. A request is accepted only if this header is
        # absent or says same-origin, and if Origin is absent or that of this page.
        site = request.headers.get("sec-fetch-site")
        origin = request.headers.get("origin")
        if site not in (None, "same-origin") or (origin and origin.split("://")[-1] != request.headers.get("host")):
            raise HTTPException(403, "the request comes from another site, or a proxy changes its Host or Origin")


def make_app(site: Site, logins: Logins | None = None, names: Iterable[str] = ()) -> Starlette:
    """Make the application over a site. Without ``logins`` nothing can be changed through it.

    ``names``: host names of the page in addition to this machine's own, see `KnownHosts`.
    """
    pages = Pages(site, logins)
    return application(
        [*pages.routes(), Mount("/static", StaticFiles(directory=STATIC))],
        _POLICY,
        pages.ready.lifespan,
        middleware=[Middleware(KnownHosts, names=tuple(names))],
        errors={Invalid: _invalid},
    )


async def _invalid(request: Request, error: Exception) -> Response:
    return JSONResponse({"error": str(error)}, status_code=400)
