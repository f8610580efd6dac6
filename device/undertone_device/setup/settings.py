"""The content of ``device.json``, separate from the code that reads it (``config.py``), which a board unloads."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class BrokerSettings:
    """The broker's address and the credentials.

    ``tls`` is None or the path of the authorities' certificates, "" the system's.

    ``identity``: path of the device's own certificate and key, without .crt and .key; None without them.
    """

    host: str
    port: int
    user: str
    password: "str | None"
    password_file: "str | None"
    tls: "str | None"
    identity: "str | None"
    keepalive: int


class DeviceConfig:
    """The validated device.json, which is in ``folder``; relative paths have been joined to it. ``wifi``: dict or None.

    ``source``: a dict; `undertone_device.setup.config` knows only its ``seconds``, `undertone_device.host.sources` the
    rest.
    """

    folder: str
    name: str
    broker: BrokerSettings
    prefix: str
    campaigns: "tuple[str, ...]"
    policy: str
    state: str
    counter_modulus: int
    outbox: int
    in_flight: int
    spread_percent: int
    source: "dict[str, Any]"
    sample_seconds: int
    wifi: "dict[str, Any] | None"
    ntp: str
