"""A device's own certificate instead of a password: NAME.crt and NAME.key, PEM. Other devices never load this."""

import binascii
import ssl

from undertone_device.setup.storage import read_bounded
from undertone_shared.errors import Invalid

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_LARGEST = 8192


def load(context: "Any", name: str) -> None:
    """Load the certificate into the TLS context. Raises Invalid for files that are no certificate and key."""
    paths = (name + ".crt", name + ".key")
    try:
        if hasattr(ssl, "SSLWantReadError"):
            context.load_cert_chain(paths[0], paths[1])
        else:
            # Most boards cannot read PEM, so MicroPython gets DER.
            context.load_cert_chain(_der(paths[0]), _der(paths[1]))
    except (OSError, ValueError) as error:
        raise Invalid("tls.identity: %s and %s are not a certificate and its key: %s" % (paths[0], paths[1], error))


def _der(path: str) -> bytes:
    lines = read_bounded(path, _LARGEST).split(b"\n")
    return binascii.a2b_base64(b"".join([line for line in lines if line[:5] != b"-----"]))
