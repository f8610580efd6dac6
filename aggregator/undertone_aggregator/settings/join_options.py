"""[join]: the HTTPS listener at which people's phones and homes redeem join codes."""

from dataclasses import dataclass
from urllib.parse import urlsplit

from undertone_aggregator.settings.broker_options import is_loopback
from undertone_aggregator.settings.options import Checked, boolean, is_host, listen_at, option, split_address, text
from undertone_shared.errors import Invalid


def origin(name: str, value: object) -> str:
    """Check the scheme, host and port with which links begin: https://HOST or https://HOST:PORT, on loopback also http.

    Raises Invalid.
    """
    try:
        parts = urlsplit(value) if isinstance(value, str) else None
        port = None if parts is None else parts.port
    except ValueError:
        parts = port = None
    host = None if parts is None else parts.hostname
    plain = parts is not None and parts.scheme == "http" and host is not None and is_loopback(host)
    valid = parts is not None and host is not None and is_host(host) and (plain or parts.scheme == "https")
    if not valid or parts is None or host is None or parts.path not in ("", "/") or parts.query or parts.username:
        raise Invalid(f"{name} is {value!r}, expected https://HOST or https://HOST:PORT")
    shown = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{shown}" + (f":{port}" if port else "")


@dataclass(frozen=True, kw_only=True)
class JoinOptions(Checked):
    """[join]: where people redeem the codes of `undertone join`, and who asks them to take part."""

    TABLE = "join"

    listen: str | None = option(None, "ADDRESS:PORT at which people join by a link, such as 0.0.0.0:8444; absent: "
                                "nobody can", listen_at)  # fmt: skip
    url: str | None = option(None, "what links begin with: https://HOST:PORT, as people's browsers reach the listener",
                             origin)  # fmt: skip
    operator: str | None = option(None, "the name of whoever asks people to take part; absent: the host in url", text)
    contact: str | None = option(None, "how people reach the operator: an address, a telephone number or a web page; "
                                 "absent: the page says none", text)  # fmt: skip
    certificate: str | None = option(None, "the listener's certificate, with its chain, which browsers must trust; "
                                     "absent: the one of [broker]", text)  # fmt: skip
    key: str | None = option(None, "the certificate's key", text)
    insecure: bool = option(False, "true: HTTP without TLS, on loopback only, behind a proxy with TLS", boolean)

    def check_together(self) -> None:
        """Raise Invalid for options that contradict each other."""
        if self.listen is None:
            return
        if self.url is None:
            raise Invalid("url is missing in [join], expected what links begin with, such as https://example.org:8444")
        if (self.certificate is None) != (self.key is None):
            missing = "key" if self.key is None else "certificate"
            raise Invalid(f"{missing} is missing in [join]: a certificate and its key go together")
        host = split_address("join.listen", self.listen)[0]
        if self.insecure and not is_loopback(host):
            raise Invalid(
                f"join.insecure is true and join.listen is {self.listen!r}: codes and passwords would cross the network"
                " in plain text; expected a loopback address"
            )
        if self.insecure and self.certificate is not None:
            raise Invalid("join.insecure is true, but join.certificate turns TLS on: remove one of them")
        if not self.insecure and not self.url.startswith("https:"):
            raise Invalid(f"join.url is {self.url!r}, expected https://, because the listener has TLS")

    @property
    def asks(self) -> str:
        """The name of whoever asks people to take part, as they read it."""
        return self.operator or str(urlsplit(self.url or "").hostname)
