"""TLS with verification, from a file of certificates; a board unloads this code after the start."""

import binascii

from undertone_shared.errors import Invalid

try:
    import ssl
except ImportError:
    ssl = None  # type: ignore[assignment]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def certificates(data: bytes, name: str) -> "list[bytes]":
    """Return the DER certificates in PEM or DER bytes.

    Raises Invalid, with the ``name`` of the bytes, if there is none, or if one is not base64.
    """
    begin = b"-----BEGIN CERTIFICATE-----"
    if data[:1] == b"\x30":
        return [data]
    ders = []
    position = data.find(begin)
    while position >= 0:
        end = data.find(b"-----END CERTIFICATE-----", position)
        if end < 0:
            break
        try:
            ders.append(binascii.a2b_base64(data[position + len(begin) : end]))
        except ValueError:
            raise Invalid("%s: a certificate is not base64" % name)
        position = data.find(begin, end)
    if not ders:
        raise Invalid("%s holds no certificate, expected PEM or DER" % name)
    return ders


def verified_context(ca: bytes, name: str = "ca") -> "Any":
    """Make a TLS context that accepts only servers whose certificate one of these authorities signed.

    ``name``: the file of the authorities, for errors.

    Raises Invalid for wrong certificates, and on a machine whose TLS cannot verify (MicroPython's default context
    silently does not).
    """
    if not hasattr(ssl, "CERT_REQUIRED") or not hasattr(ssl, "SSLContext"):
        raise Invalid("tls: this machine cannot verify a server")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.verify_mode = ssl.CERT_REQUIRED
    for certificate in certificates(ca, name):
        try:
            context.load_verify_locations(cadata=certificate)
        except (ValueError, OSError) as error:
            raise Invalid("%s: %s" % (name, error))
    return context


def system_context() -> "Any":
    """Return the context of this machine's own authorities. Raises Invalid if there are none."""
    default = getattr(ssl, "create_default_context", None)
    if default is None:
        raise Invalid("broker.tls has no field ca, expected one on a board")
    return default()
