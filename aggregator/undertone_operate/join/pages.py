"""The pages below `/join/`: the phone's web app or, without the app, a page that says what to do with a code."""

import gzip
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

from undertone_device.tools.phone_app import media_type, phone_files, security_policy


@dataclass(frozen=True)
class JoinPage:
    """A file of the pages. ``compressed``: ``content`` as gzip; ``etag``: changes with the content."""

    media_type: str
    content: bytes
    compressed: bytes
    etag: str

    @classmethod
    def of(cls, kind: str, content: bytes) -> "JoinPage":
        """Make the page of this media type."""
        return cls(kind, content, gzip.compress(content, 9, mtime=0), f'"{hashlib.sha256(content).hexdigest()[:32]}"')


@dataclass(frozen=True)
class JoinPages:
    """The pages below `/join/`, by their paths. The path "" is that of the first page.

    ``policy``: the Content-Security-Policy of every response.
    """

    files: Mapping[str, JoinPage]
    policy: str


def phone_pages(websocket: str) -> JoinPages:
    """Return the phone's web app. ``websocket``: the address of MQTT over WebSocket.

    Raises Invalid if this installation lacks MicroPython.
    """
    files = phone_files(websocket)
    files[""] = files.pop("index.html")
    pages = {path: JoinPage.of(media_type(path or "index.html"), content) for path, content in files.items()}
    return JoinPages(pages, security_policy(websocket))


_PAGE = b"""<!doctype html>
<html lang="en"><meta charset="utf-8"><title>Join</title><meta name="viewport" content="width=device-width">
<h1>Your invitation</h1>
<p>The address of this page ends with a code after the sign #. The code lets one device take part.</p>
<p>In Home Assistant, add the integration Undertone, and paste the whole address of this page.</p>
</html>
"""
PLAIN = JoinPages(
    {"": JoinPage.of("text/html; charset=utf-8", _PAGE)},
    "default-src 'none'; base-uri 'none'; frame-ancestors 'none'",
)
