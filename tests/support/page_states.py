"""The page in states that a test chooses.

One server shows all states. Each state has a path, below which the server changes the summaries of campaigns.
"""

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from support.ports import free_port
from support.waiting import wait_for
from undertone_aggregator.web.app import make_app
from undertone_aggregator.web.site import Site

# A function that changes the answer with the summaries of all campaigns.
Change = Callable[[dict[str, Any]], dict[str, Any]]
Summary = dict[str, Any]


def served(state: str, **fields: Any) -> Callable[[Summary], Summary]:
    """Return a function that changes a campaign's summary, as if a server ran the campaign and it were in ``state``.

    ``fields``: further changes of what the server says.
    """

    def change(summary: Summary) -> Summary:
        devices = {"all": {"reporting": 380, "silent": 20, "lost": 3, "conflicting": 0}}
        until = summary["settled"] * summary["slot_seconds"] + summary["slot_seconds"]
        facts = {"state": state, "reason": "", "newest_report": until, "reachable": True, "problems": [], "alarms": []}
        facts |= {"devices": devices, "devices_until": until, "settle_slots": 2}
        facts |= {"asks": "Municipal works of Aldersford", "purpose": "To plan the grid of the new quarter."}
        facts |= {"contact": "energy@aldersford.example", "title": "Electricity of a home"}
        return summary | {"server": {**facts, **fields}}

    return change


def full(summary: Summary) -> Summary:
    said = (
        f"campaign {summary['name']} waits, because a disk is full: no space left on device. Make room there,"
        " and the campaign goes on by itself"
    )
    alarm = {"time": time.time() - 7200, "event": "disk", "sentence": said}
    return served("running", problems=[said], alarms=[alarm], full=True)(summary)


class _Changed:
    """An application that changes the summaries, both in the answer for all campaigns and in that for one."""

    def __init__(self, app: ASGIApp, change: Change) -> None:
        self._app, self._change = app, change

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"].partition("/api/v1/campaigns")[2].strip("/")
        if "/api/v1/campaigns" not in scope["path"] or "/" in path:
            await self._app(scope, receive, send)
            return
        body, begun = b"", []

        async def change(message: Message) -> None:
            nonlocal body
            if message["type"] == "http.response.start":
                begun.append(message)
                return
            body += message.get("body", b"")
            if message.get("more_body", False):
                return
            answer = json.loads(body)
            changed = self._change({"campaigns": [answer]})["campaigns"][0] if path else self._change(answer)
            headers = [(name, value) for name, value in begun[0]["headers"] if name != b"content-length"]
            await send(begun[0] | {"headers": headers})
            await send({"type": "http.response.body", "body": json.dumps(changed).encode()})

        await self._app(scope, receive, change)


@contextlib.contextmanager
def served_states(states: Mapping[str, tuple[Site, Change]]) -> Iterator[str]:
    """Serve a page for each state at a path with the state's name. Yields the address before these names."""
    routes = [Mount(f"/{name}", _Changed(make_app(site), change)) for name, (site, change) in states.items()]
    port = free_port()
    server = uvicorn.Server(
        uvicorn.Config(Starlette(routes=routes), port=port, log_level="warning", timeout_graceful_shutdown=1)
    )
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        wait_for(lambda: server.started, what="the page's server")
        yield f"http://127.0.0.1:{port}/"
    finally:
        server.should_exit = True
        thread.join()
