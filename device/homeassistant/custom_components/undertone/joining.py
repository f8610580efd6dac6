"""The client of a server's join API: asks what the server offers, redeems a code, and leaves the campaign.

The server describes the API in `GET /api/join/openapi.json`.
"""

import asyncio
import hashlib
import json
import ssl
from typing import Any

import aiohttp

from .links import JoinError, Link
from .participation import Invalid, shown

_TIMEOUT = aiohttp.ClientTimeout(total=30)
_LARGEST = 1 << 20
_LARGEST_AUTHORITY = 1 << 14
_TRIES = 3
_PAUSE_SECONDS = 1.0


class JoinServer:
    """The server of a link. Every method raises JoinError if the server refuses or cannot be reached."""

    def __init__(self, session: aiohttp.ClientSession, link: Link) -> None:
        self._session = session
        self._link = link
        # True means that the connection trusts the authorities that this machine trusts.
        self._tls: ssl.SSLContext | bool = True

    async def offer(self, language: str) -> dict[str, Any]:
        """Return who asks and why, and the policy that is offered; this has no effect on the server."""
        offer = await self._post("offer", {}, language)
        try:
            fields = {name: offer[name] for name in ("operator", "campaign", "about", "policy")}
            await asyncio.to_thread(shown, fields, language)
        except (Invalid, KeyError):
            raise JoinError("cannot_connect") from None
        if not isinstance(fields["campaign"], str):
            raise JoinError("cannot_connect")
        return fields

    async def redeem(self, key: str) -> dict[str, Any]:
        """Redeem the code with ``key``, 64 hexadecimal digits: the same key gets the same answer again.

        If the server cannot be reached or is unavailable, the request is repeated, because the code may have been
        redeemed just before.
        """
        for attempt in range(_TRIES):
            try:
                return await self._post("redeem", {"key": key}, "en")
            except JoinError as error:
                if error.reason not in ("cannot_connect", "unavailable") or attempt == _TRIES - 1:
                    raise
            await asyncio.sleep(_PAUSE_SECONDS)
        raise JoinError("cannot_connect")

    async def leave(self, key: str) -> None:
        """Have the server revoke the device that joined with ``key``."""
        await self._post("leave", {"key": key}, "en")

    async def _post(self, action: str, fields: dict[str, str], language: str) -> dict[str, Any]:
        if self._link.fingerprint and self._tls is True:
            self._tls = await self._private_authority()
        body = {"code": self._link.code, **fields}
        headers = {"Accept-Language": language}
        status, text = await self._ask("POST", action, _LARGEST, self._tls, json=body, headers=headers)
        data = _parse(text)
        if status != 200:
            raise JoinError(str(data.get("reason", "cannot_connect")))
        return data

    async def _private_authority(self) -> ssl.SSLContext:
        """Return a context that trusts only the authority whose certificate has the link's fingerprint.

        The request for this certificate is made without verification, and sends no secret.
        """
        status, text = await self._ask("GET", "ca.crt", _LARGEST_AUTHORITY, False)
        if status != 200:
            raise JoinError("certificate")
        return await asyncio.to_thread(_trusting, text, self._link.fingerprint)

    async def _ask(
        self, method: str, path: str, largest: int, tls: ssl.SSLContext | bool, **options: Any
    ) -> tuple[int, bytes]:
        """Return status and body of an answer of at most ``largest`` bytes. Raises JoinError."""
        url = f"{self._link.base}/api/join/{path}"
        try:
            async with self._session.request(
                method, url, ssl=tls, timeout=_TIMEOUT, allow_redirects=False, **options
            ) as answer:
                text = b""
                async for part in answer.content.iter_chunked(_LARGEST_AUTHORITY):
                    text += part
                    if len(text) > largest:
                        raise JoinError("cannot_connect")
                return answer.status, text
        except aiohttp.ClientConnectorCertificateError:
            raise JoinError("certificate") from None
        except (aiohttp.ClientError, TimeoutError, ValueError):
            raise JoinError("cannot_connect") from None


def _parse(text: bytes) -> dict[str, Any]:
    """Return the JSON object of an answer. Raises JoinError."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        data = None
    if not isinstance(data, dict):
        raise JoinError("cannot_connect")
    return data


def _trusting(text: bytes, fingerprint: str) -> ssl.SSLContext:
    """Return a context for the authority in ``text`` (PEM), if that has the fingerprint. Raises JoinError."""
    try:
        certificate = ssl.PEM_cert_to_DER_cert(text.decode("ascii"))
        if hashlib.sha256(certificate).hexdigest() != fingerprint:
            raise JoinError("certificate")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        # The context loads the same bytes whose fingerprint was compared.
        context.load_verify_locations(cadata=certificate)
    except (ValueError, ssl.SSLError):
        raise JoinError("certificate") from None
    return context
