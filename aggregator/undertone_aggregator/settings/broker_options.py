"""[broker]: the way in which reports come, and the options of each way."""

import ipaddress
from dataclasses import dataclass
from urllib.parse import urlsplit

from undertone_aggregator.settings.options import (
    Checked,
    boolean,
    choice,
    host_name,
    integer,
    is_host,
    listen_at,
    option,
    split_address,
    text,
)
from undertone_aggregator.settings.report_sources import DIRECT, EXTERNAL, SOURCES, SourceKind
from undertone_shared.errors import Invalid
from undertone_shared.topics import DEFAULT_PREFIX, check_name, check_prefix


def source(name: str, value: object) -> str:
    """Check the name of a report source. Raises Invalid."""
    return choice(*SOURCES)(name, value)  # type: ignore[no-any-return]


def topic_prefix(name: str, value: object) -> str:
    """Check the levels that topics start with. Raises Invalid."""
    return check_prefix(text(name, value))


def check_user(name: str, value: object) -> str:
    """Check a user name at a broker. Raises Invalid."""
    return check_name(name, text(name, value))


def hosts(name: str, value: object) -> tuple[str, ...]:
    """Check the places of brokers, HOST or HOST:PORT. Raises Invalid."""
    if not isinstance(value, list | tuple) or not all(isinstance(place, str) and place for place in value):
        raise Invalid(f"{name} is {value!r}, expected a list of HOST or HOST:PORT")
    for place in value:
        if not is_host(_place(place)[0]):
            raise Invalid(f"{name} holds {place!r}, expected HOST or HOST:PORT")
    return tuple(value)


def websocket_url(name: str, value: object) -> str:
    """Check the address of MQTT over WebSocket: wss://HOST, and port and path if they differ from the usual ones.

    On loopback, ws:// is valid, too. Raises Invalid.
    """
    refusal = f"{name} is {value!r}, expected wss://HOST, wss://HOST:PORT or wss://HOST:PORT/PATH"
    try:
        parts = urlsplit(text(name, value))
        host, port = parts.hostname or "", parts.port
    except ValueError:
        raise Invalid(refusal) from None
    # The page's Content-Security-Policy allows connections to this scheme, host and port. It cannot express a user
    # name, a query or a fragment.
    if parts.scheme not in ("ws", "wss") or not is_host(host) or parts.username or parts.query or parts.fragment:
        raise Invalid(refusal)
    if parts.scheme == "ws" and not is_loopback(host):
        raise Invalid(f"{refusal}: ws:// has no TLS, so passwords would cross the network in plain text")
    place = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{place}" + ("" if port is None else f":{port}") + parts.path


def _place(text: str) -> tuple[str, int]:
    """Split HOST or HOST:PORT into (host, port). Without a port, the port is 0. An IPv6 address with a port is in
    brackets.
    """
    try:
        return split_address("hosts", text)
    except Invalid:
        return text.strip("[]"), 0


@dataclass(frozen=True, kw_only=True)
class BrokerOptions(Checked):
    """[broker]: devices connect to this server, or to an external broker."""

    TABLE = "broker"

    mode: str = option(DIRECT, "; ".join(f"{name}: {kind.help}" for name, kind in SOURCES.items()), source)
    prefix: str = option(DEFAULT_PREFIX, "the beginning of every MQTT topic", topic_prefix)
    port: int = option(0, "the port; 0 means 8883 with TLS and 1883 without TLS", integer(0, 65535))
    passwords: str = option("passwords", "direct: the devices' password file, as undertone init writes it",
                            text)  # fmt: skip
    access: str | None = option(None, "direct: the access-control file, as undertone init writes it: "
                                "the campaigns that each device may report to; absent: any device may report to "
                                "every campaign", text)  # fmt: skip
    directory: str = option("broker", "external: the folder in which undertone init has put the broker's files", text)
    host: str = option(
        "127.0.0.1", "direct: the address to listen on; external: the broker's name or address", host_name
    )
    reached_as: str | None = option(None, "direct: the name or address by which devices reach this server; absent: "
                                    "the value of host", host_name)  # fmt: skip
    hosts: tuple[str, ...] = option((), "external: several brokers in place of host, each HOST or HOST:PORT; "
                                    "with n brokers, the devices of shard s use broker s mod n, counted from 0",
                                    hosts)  # fmt: skip
    certificate: str | None = option(None, "direct: the certificate that devices verify, with its chain; read again "
                                     "at SIGHUP", text)  # fmt: skip
    key: str | None = option(None, "direct: the certificate's key", text)
    websocket: str | None = option(None, "direct: ADDRESS:PORT of MQTT over WebSocket, for phones and for networks "
                                   "that let only HTTPS pass", listen_at)  # fmt: skip
    websocket_url: str | None = option(None, "external: wss://HOST:PORT/PATH of the broker's MQTT over WebSocket, by "
                                       "which phones reach it; absent: phones cannot join", websocket_url)  # fmt: skip
    connections: int | None = option(None, "direct: devices that may be connected at once; absent: as many as the "
                                     "memory allows; never more than the limit of open files allows",
                                     integer(1, 1 << 20))  # fmt: skip
    user: str = option("aggregator", "external: this server's user name at the broker", check_user)
    password_file: str | None = option(None, "external: a file with this server's own password", text)
    ca_file: str | None = option(None, "external: the authority that signed the broker's certificate; absent: one "
                                 "that this machine trusts; direct: the authority that signed the devices' "
                                 "certificates", text)  # fmt: skip
    worker_users: bool = option(True, "external: true: each worker connects under a name of its own, "
                                "`user` and a number, such as aggregator-0, for which undertone init writes a "
                                "password; false: all connect as `user`",
                                boolean)  # fmt: skip
    insecure: bool = option(False, "external: true allows a broker elsewhere without TLS, which shows the password "
                            "to the network", boolean)  # fmt: skip
    keepalive: int = option(30, "seconds between MQTT keepalive packets", integer(5, 3600))

    @property
    def source(self) -> SourceKind:
        """The way in which reports come."""
        return SOURCES[self.mode]

    @property
    def places(self) -> list[tuple[str, int]]:
        """(host, port) of each broker; port 0 means MQTT's usual port."""
        return [_place(text) for text in self.hosts] or [(self.host, self.port)]

    @property
    def websocket_place(self) -> tuple[str, int] | None:
        """(address, port) of MQTT over WebSocket, None without it."""
        return None if self.websocket is None else split_address("broker.websocket", self.websocket)


# Options that only one mode uses -> this mode. An option that has its default value counts as not given.
_MODES = {
    "passwords": DIRECT,
    "access": DIRECT,
    "certificate": DIRECT,
    "key": DIRECT,
    "reached_as": DIRECT,
    "websocket": DIRECT,
    "connections": DIRECT,
    "password_file": EXTERNAL,
    "insecure": EXTERNAL,
    "hosts": EXTERNAL,
    "websocket_url": EXTERNAL,
}


def is_loopback(host: str) -> bool:
    """Return True if a host name or address means this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def check_broker(broker: BrokerOptions, workers: int) -> None:
    """Raise Invalid for options that do not fit together, or do not fit the number of ``workers``."""
    for name, mode in _MODES.items():
        if getattr(broker, name) != getattr(BrokerOptions, name) and broker.mode != mode:
            raise Invalid(f"broker.{name} is for mode = {mode!r}, but mode is {broker.mode!r}")
    if broker.insecure and broker.ca_file is not None:
        raise Invalid("broker.insecure is true, but broker.ca_file turns TLS on: remove one of them")
    if broker.hosts and broker.host != BrokerOptions.host:
        raise Invalid(f"broker.host is {broker.host!r}, but broker.hosts names the brokers: remove one of them")
    if broker.hosts and broker.websocket_url is not None:
        raise Invalid(
            f"broker.websocket_url is {broker.websocket_url!r}, the address of one broker, but broker.hosts is a "
            "list of brokers: remove one of the two options"
        )
    if not broker.source.broker:
        _check_direct(broker, workers)
    elif broker.password_file is None:
        raise Invalid(
            f"password_file is missing in [broker], expected the file with the password of the user {broker.user}"
        )


def _check_direct(broker: BrokerOptions, workers: int) -> None:
    if (broker.certificate is None) != (broker.key is None):
        missing = "key" if broker.key is None else "certificate"
        raise Invalid(f"{missing} is missing in [broker]: a certificate and its key go together")
    if broker.ca_file is not None and broker.certificate is None:
        raise Invalid("broker.ca_file is for devices' certificates, expected broker.certificate and broker.key as well")
    if broker.certificate is None and not is_loopback(broker.host):
        raise Invalid(
            f"broker.host is {broker.host!r} without broker.certificate and broker.key: passwords and reports would"
            " cross the network in plain text; expected both files, or a loopback address such as 127.0.0.1"
        )
    if broker.certificate is None and broker.websocket_place is not None and not is_loopback(broker.websocket_place[0]):
        raise Invalid(
            f"broker.websocket is {broker.websocket!r} without broker.certificate and broker.key, expected both"
            " files, or a loopback address such as 127.0.0.1:8443"
        )
    if workers > 1:
        raise Invalid(
            f"server.workers is {workers}, expected 1 if broker.mode is {broker.mode!r}: several workers need a broker"
        )


def check_sessions(broker: BrokerOptions, workers: int, sessions: int, *, shared: bool) -> None:
    """Raise Invalid if there are more workers than sessions, or if brokers cannot share the sessions evenly.

    ``sessions``: number of sessions of all workers together. ``shared``: it is the number of partitions.
    """
    name = "partitions" if shared else "workers"
    if workers > sessions:
        raise Invalid(f"server.workers is {workers}, expected at most server.partitions = {sessions}")
    if sessions % len(broker.places):
        raise Invalid(
            f"server.{name} is {sessions}, expected a multiple of {len(broker.places)}, the number of brokers in"
            " broker.hosts"
        )
