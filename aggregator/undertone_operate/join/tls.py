"""TLS of the listener at which people join: its certificate, and the folder's authority if that issued it.

A client that has not joined anything yet cannot know a private authority. So a link holds the authority's fingerprint
beside the code. A client first gets the authority's certificate over a connection that it cannot verify. It compares
the certificate with the link, and from then on trusts exactly this authority.
"""

import contextlib
import ssl
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization

from undertone_aggregator.mqtt.endpoint.listener import Listener
from undertone_aggregator.settings.broker_options import BrokerOptions
from undertone_aggregator.settings.join_options import JoinOptions
from undertone_operate.fleet.device_files import AUTHORITY
from undertone_shared.errors import Invalid


class JoinTls:
    """The listener's TLS files: those of [join], or else those of [broker].

    ``context``: the context that the listener's socket gets. Each handshake uses the newest certificate that ``renew``
    has read. ``authority``: certificate (PEM) of the folder's authority if it issued the listener's certificate itself,
    else None.

    Raises Invalid without a certificate, and for files that cannot be used.
    """

    def __init__(self, folder: Path, options: JoinOptions, broker: BrokerOptions) -> None:
        certificate, key = options.certificate or broker.certificate, options.key or broker.key
        if certificate is None or key is None:
            missing = "certificate" if certificate is None else "key"
            raise Invalid(f"{missing} is missing in [join], expected a certificate and its key, there or in [broker]")
        self._listener = Listener(certificate=folder / certificate, key=folder / key)
        self._files = (folder / certificate, folder / key, folder / AUTHORITY)
        self._times = self._modified()
        self.context = self._context = self._read()
        self.authority = self._issuer()
        self.context.sni_callback = self._choose

    def renew(self) -> bool:
        """Read the files again if one of them has changed; return True if the changed files are now in use.

        For files that cannot be used, raises Invalid once for each change; then the old files stay in use.
        """
        times = self._modified()
        if times == self._times:
            return False
        self._times = times
        # A handshake has either the old context or the new one, as a whole.
        self._context = self._read()
        self.authority = self._issuer()
        return True

    def _choose(self, connection: ssl.SSLSocket | ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:
        connection.context = self._context

    def _read(self) -> ssl.SSLContext:
        context = self._listener.context()
        assert context is not None
        return context

    def _modified(self) -> list[int]:
        """Return when the files were last modified. A file that is missing for a moment is skipped."""
        times = []
        for path in self._files:
            with contextlib.suppress(OSError):
                times.append(path.stat().st_mtime_ns)
        return times

    def _issuer(self) -> str | None:
        certificate, _, authority = self._files
        try:
            shown = x509.load_pem_x509_certificate(certificate.read_bytes())
            trusted = x509.load_pem_x509_certificates(authority.read_bytes())
        except (OSError, ValueError):
            return None
        issuer = next((each for each in trusted if _issued(shown, each)), None)
        return None if issuer is None else issuer.public_bytes(serialization.Encoding.PEM).decode()


def fingerprint(authority: str) -> str:
    """Return the SHA-256 of a certificate (PEM) in DER, as 64 hexadecimal digits."""
    return x509.load_pem_x509_certificate(authority.encode()).fingerprint(hashes.SHA256()).hex()


def join_link(url: str, code: str, authority: str | None) -> str:
    """Return the link of a code: `URL/join#CODE`, or `URL/join#CODE.FINGERPRINT` with a private ``authority``.

    ``authority``: certificate (PEM) of the private authority that issued the listener's certificate.
    """
    return f"{url}/join#{code}" + ("" if authority is None else f".{fingerprint(authority)}")


def _issued(certificate: x509.Certificate, issuer: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(issuer)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True
