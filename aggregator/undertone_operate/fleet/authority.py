"""A private certificate authority: certificates for the broker and for devices, and the revocation list."""

import hashlib
import ipaddress
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from undertone_aggregator.base.files import write_private
from undertone_aggregator.settings.options import host_name
from undertone_shared.errors import Invalid

NAME = "Undertone CA"
# Order of the group of P-256 (FIPS 186-5).
_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
# File name of the authority's key, beside its certificate.
AUTHORITY_KEY = "ca.key"
_CA_DAYS = 3650
_SERVER_DAYS = 825
# Validity of a device's certificate in days; long, because boards in the field are rarely visited.
_DEVICE_DAYS = 3650
# The validity of a certificate starts this much earlier than now, because a board whose clock is slow would refuse a
# certificate that starts now.
_EARLIER = timedelta(days=1)


def private_authority(directory: Path, host: str) -> Path:
    """Make ca.crt, ca.key, server.crt and server.key for a broker called `host` in `directory`; return ca.crt's path.

    The keys are elliptic-curve keys (P-256). Raises Invalid for an invalid host name, OSError.
    """
    host_name("--host", host)
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    authority, server = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    certificates = {"ca": (authority, _root(authority)), "server": (server, _server(server, authority, [host]))}
    for name, (key, unsigned) in certificates.items():
        signed = unsigned.sign(authority, hashes.SHA256())
        (directory / f"{name}.crt").write_bytes(signed.public_bytes(serialization.Encoding.PEM))
        write_private(directory / f"{name}.key", key_text(key))
    return directory / "ca.crt"


def server_certificate(authority: Path, hosts: Sequence[str]) -> tuple[str, str]:
    """Make (certificate, key) in PEM for a server with these names or addresses, signed by the authority in a file.

    Raises Invalid for an invalid name, and if the authority's key is not beside its certificate.
    """
    for host in hosts:
        host_name("the server's name", host)
    signer, key = _signer(authority), ec.generate_private_key(ec.SECP256R1())
    signed = _server(key, signer, list(dict.fromkeys(hosts))).sign(signer, hashes.SHA256())
    return signed.public_bytes(serialization.Encoding.PEM).decode(), key_text(key)


def renew_server(folder: Path, hosts: Sequence[str]) -> tuple[list[str], int]:
    """Replace the certificate and key of the server whose folder this is; return (its names, the Unix second at which
    the certificate ends).

    ``hosts``: its names; if empty, it keeps the names of the old certificate. The authority stays, so every device that
    trusts the authority trusts the new certificate. Raises Invalid without the authority's key, or without an old
    certificate from which the names could be taken.
    """
    authority, place = folder / "tls/ca.crt", folder / "broker/server.crt"
    names = list(dict.fromkeys(hosts)) or _names(place)
    certificate, key = server_certificate(authority, names)
    # The key is written first. A server that reads both files before the certificate is written refuses them, because
    # they do not match, and keeps the old ones.
    write_private(place.with_suffix(".key"), key)
    write_private(place, certificate)
    end = x509.load_pem_x509_certificate(certificate.encode()).not_valid_after_utc
    return names, int(end.timestamp())


def _names(path: Path) -> list[str]:
    """Return the names and addresses in a server's certificate. Raises Invalid for a file that holds no certificate."""
    try:
        shown = x509.load_pem_x509_certificate(path.read_bytes())
        names = shown.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (OSError, ValueError, x509.ExtensionNotFound) as wrong:
        why = wrong.strerror if isinstance(wrong, OSError) else wrong
        raise Invalid(
            f"no names can be read from the certificate {path} ({why}): give the names with --host, or make a server"
            " with undertone init --tls"
        ) from None
    return names.get_values_for_type(x509.DNSName) + [str(each) for each in names.get_values_for_type(x509.IPAddress)]


def device_certificate(authority: Path, name: str, seed: bytes | None = None) -> tuple[str, str]:
    """Make (certificate, key) in PEM for the device ``name``, signed by the authority in the file ``authority``.

    The certificate's common name is the device's name, which mosquitto reads with `use_identity_as_username`.
    ``seed``: see `device_key`; None makes a random key. Raises Invalid if the authority's key is not beside its
    certificate.
    """
    signer = _signer(authority)
    key = ec.generate_private_key(ec.SECP256R1()) if seed is None else device_key(seed)
    builder = _builder(name, key, _DEVICE_DAYS)
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    builder = builder.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
    signed = builder.add_extension(issuer, critical=False).sign(signer, hashes.SHA256())
    return signed.public_bytes(serialization.Encoding.PEM).decode(), key_text(key)


def device_key(seed: bytes) -> ec.EllipticCurvePrivateKey:
    """Return the elliptic-curve key (P-256) that 32 secret bytes determine.

    The private value is 1 + (SHA-512 of the seed mod (n - 1)) for the curve's order n, so its distance from uniform is
    below 2^-255 (FIPS 186-5, A.2.1).
    """
    number = int.from_bytes(hashlib.sha512(b"undertone device key" + seed).digest())
    return ec.derive_private_key(1 + number % (_ORDER - 1), ec.SECP256R1())


def is_for_key(certificate: str, key: ec.EllipticCurvePrivateKey) -> bool:
    """Return True if a certificate (PEM) is for this key. Raises ValueError for a text that is no certificate."""
    return x509.load_pem_x509_certificate(certificate.encode()).public_key() == key.public_key()


def revoke_certificates(authority: Path, certificates: Iterable[Path] = ()) -> Path:
    """Add certificates to the authority's revocation list, ca.crl beside ca.crt, and return its path.

    A missing list is made. The list is valid for ten years. Raises Invalid without the authority's key, OSError for a
    file that cannot be read or written.
    """
    path, now = authority.with_suffix(".crl"), datetime.now(UTC)
    builder = x509.CertificateRevocationListBuilder().issuer_name(_named(NAME))
    builder = builder.last_update(now - _EARLIER).next_update(now + timedelta(days=_CA_DAYS))
    before = list(x509.load_pem_x509_crl(path.read_bytes())) if path.exists() else []
    serials = {entry.serial_number: entry.revocation_date_utc for entry in before}
    for file in certificates:
        serials.setdefault(x509.load_pem_x509_certificate(file.read_bytes()).serial_number, now)
    for serial, since in serials.items():
        entry = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(since).build()
        builder = builder.add_revoked_certificate(entry)
    signed = builder.sign(_signer(authority), hashes.SHA256())
    write_private(path, signed.public_bytes(serialization.Encoding.PEM).decode())
    return path


def _signer(authority: Path) -> ec.EllipticCurvePrivateKey:
    path = authority.with_suffix(".key")
    if not path.exists():
        raise Invalid(f"{path} is missing, expected the authority's key")
    try:
        signer = serialization.load_pem_private_key(path.read_bytes(), None)
    except (ValueError, TypeError):
        signer = None
    if not isinstance(signer, ec.EllipticCurvePrivateKey):
        raise Invalid(f"{path} is not a usable key, expected an elliptic-curve key in PEM without a passphrase")
    return signer


def key_text(key: ec.EllipticCurvePrivateKey) -> str:
    """Return a key in PEM."""
    form = serialization.PrivateFormat.PKCS8
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()).decode()


def _root(key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    signs = x509.KeyUsage(
        digital_signature=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )
    builder = _builder(NAME, key, _CA_DAYS).add_extension(signs, critical=True)
    return builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)


def _server(
    key: ec.EllipticCurvePrivateKey, authority: ec.EllipticCurvePrivateKey, hosts: Sequence[str]
) -> x509.CertificateBuilder:
    # A common name has at most 64 characters. Clients compare the alternative names instead, which may be longer.
    builder = _builder(hosts[0][:64], key, _SERVER_DAYS)
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    builder = builder.add_extension(
        x509.SubjectAlternativeName([_general_name(host) for host in hosts]), critical=False
    )
    builder = builder.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key())
    return builder.add_extension(issuer, critical=False)


def _builder(subject: str, key: ec.EllipticCurvePrivateKey, days: int) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder(serial_number=x509.random_serial_number(), public_key=key.public_key())
    builder = builder.subject_name(_named(subject)).issuer_name(_named(NAME))
    builder = builder.not_valid_before(now - _EARLIER).not_valid_after(now + timedelta(days=days))
    return builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)


def _named(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
