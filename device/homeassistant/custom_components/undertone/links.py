"""Join links: takes a link apart."""

import hashlib
import re
from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import urlsplit

_FINGERPRINT = re.compile("[0-9a-f]{64}")
# Digits that people type in place of similar letters of a code. Hyphens and spaces in a code do not matter.
_MISREAD = str.maketrans("018", "OIB", "- ")


class JoinError(Exception):
    """The link is not valid, or the server refused or could not be reached.

    ``reason``: a word of the API, or cannot_connect, certificate, invalid_link.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True)
class Link:
    """A join link: the address of the server's join API, the one-time code, and the private authority's fingerprint.

    ``fingerprint``: SHA-256 of the authority's certificate (DER) as 64 hexadecimal digits; "" for a certificate of a
    public authority.
    """

    base: str
    code: str
    fingerprint: str = ""

    @classmethod
    def parse(cls, text: str) -> "Link":
        """Take ``https://HOST[:PORT]/join#CODE[.FINGERPRINT]`` apart. Raises JoinError.

        Plain HTTP is allowed on loopback only.
        """
        try:
            parts = urlsplit(text.strip())
            host, port = parts.hostname or "", parts.port
        except ValueError:
            raise JoinError("invalid_link") from None
        code, dot, fingerprint = parts.fragment.strip().partition(".")
        code = code.translate(_MISREAD).upper()
        if not host or not 16 <= len(code) <= 64 or not parts.path.rstrip("/").endswith("/join"):
            raise JoinError("invalid_link")
        if dot and _FINGERPRINT.fullmatch(fingerprint) is None:
            raise JoinError("invalid_link")
        if parts.scheme != "https" and not (parts.scheme == "http" and is_loopback(host) and not dot):
            raise JoinError("invalid_link")
        place = f"[{host}]" if ":" in host else host
        prefix = parts.path.rstrip("/").removesuffix("/join")
        return cls(f"{parts.scheme}://{place}{'' if port is None else f':{port}'}{prefix}", code, fingerprint)

    @property
    def secure(self) -> bool:
        """True for HTTPS; False for plain HTTP, which only a link to this machine may use."""
        return self.base.startswith("https:")

    @property
    def folder(self) -> str:
        """Name of the folder for the device that joins by this link. It tells nothing about the code."""
        return hashlib.sha256(self.code.encode()).hexdigest()[:16]


def is_loopback(host: str) -> bool:
    """Return True for an address or name of this machine."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
