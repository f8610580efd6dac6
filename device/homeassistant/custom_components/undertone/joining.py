"""Joining by a link: takes the link apart, asks the campaign's server what it offers, and redeems the code."""

import asyncio
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

import aiohttp

_TIMEOUT = aiohttp.ClientTimeout(total=30)
_LARGEST = 1 << 20
_TRIES = 3
_PAUSE_SECONDS = 1.0


class JoinError(Exception):
    """The server refused, or could not be reached. ``reason``: a word of the API, or cannot_connect, invalid_link."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True)
class Link:
    """A join link: the address of the server's join API, and the one-time code."""

    base: str
    code: str

    @classmethod
    def parse(cls, text: str) -> "Link":
        """Take ``https://HOST[:PORT]/join#CODE`` apart. Raises JoinError; plain HTTP is allowed on loopback only."""
        try:
            parts = urlsplit(text.strip())
            host, code, port = parts.hostname or "", parts.fragment.strip(), parts.port
        except ValueError:
            raise JoinError("invalid_link") from None
        if not host or not 16 <= len(code) <= 64 or not parts.path.rstrip("/").endswith("/join"):
            raise JoinError("invalid_link")
        if parts.scheme != "https" and not (parts.scheme == "http" and _is_loopback(host)):
            raise JoinError("invalid_link")
        place = f"[{host}]" if ":" in host else host
        prefix = parts.path.rstrip("/").removesuffix("/join")
        return cls(f"{parts.scheme}://{place}{'' if port is None else f':{port}'}{prefix}", code)


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


async def ask_offer(session: aiohttp.ClientSession, link: Link, language: str) -> dict[str, Any]:
    """Return what the campaign offers; this has no effect on the server. Raises JoinError."""
    return await _post(session, f"{link.base}/api/join/offer", {"code": link.code}, language)


async def redeem(session: aiohttp.ClientSession, link: Link, key: str) -> dict[str, Any]:
    """Redeem the code with ``key``, 64 hexadecimal digits: the same key gets the same answer again. Raises JoinError.

    A broken connection is tried again, because a code that was redeemed just before it broke is not lost.
    """
    for attempt in range(_TRIES):
        try:
            return await _post(session, f"{link.base}/api/join/redeem", {"code": link.code, "key": key}, "en")
        except JoinError as error:
            if error.reason not in ("cannot_connect", "unavailable") or attempt == _TRIES - 1:
                raise
        await asyncio.sleep(_PAUSE_SECONDS)
    raise JoinError("cannot_connect")


async def _post(session: aiohttp.ClientSession, url: str, body: dict[str, str], language: str) -> dict[str, Any]:
    try:
        async with session.post(
            url, json=body, timeout=_TIMEOUT, headers={"Accept-Language": language}, allow_redirects=False
        ) as answer:
            if (answer.content_length or 0) > _LARGEST:
                raise JoinError("cannot_connect")
            data = await answer.json()
    except aiohttp.ClientConnectorCertificateError:
        raise JoinError("certificate") from None
    except (aiohttp.ClientError, TimeoutError, ValueError):
        raise JoinError("cannot_connect") from None
    if not isinstance(data, dict):
        raise JoinError("cannot_connect")
    if answer.status != 200:
        raise JoinError(str(data.get("reason", "cannot_connect")))
    return data
