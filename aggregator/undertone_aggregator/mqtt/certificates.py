"""When the certificates of a server's folder end, so that an operator can be told in time."""

import contextlib
from pathlib import Path

from undertone_aggregator.settings.config import Config

# Certificates as `undertone init` places them: the server's or broker's own, and the authority's.
_USUAL = ("broker/server.crt", "tls/server.crt", "tls/ca.crt")


def certificate_ends(config: Config) -> dict[str, int]:
    """Return a map: path -> Unix second at which the certificate in that file ends.

    The paths are those of the configuration and the usual ones. Missing files, and files without a certificate, are
    left out.
    """
    configured = (config.broker.certificate, config.broker.ca_file, config.join.certificate)
    names = [name for name in (*configured, *_USUAL) if name is not None]
    found = {}
    for name in dict.fromkeys(names):
        with contextlib.suppress(OSError, ValueError):
            found[name] = certificate_end(config.path(name))
    return found


def cure(path: str) -> str:
    """Return how an operator replaces the certificate in this file before it expires, as a part of a sentence."""
    if Path(path).name == "ca.crt":
        return "no command renews an authority: give every device the certificate of a new authority"
    return "run undertone authority renew, or put a new certificate there"


def certificate_end(path: Path) -> int:
    """Return the Unix second at which the first certificate in a PEM file ends. Raises OSError, ValueError."""
    from cryptography import x509

    return int(x509.load_pem_x509_certificate(path.read_bytes()).not_valid_after_utc.timestamp())
