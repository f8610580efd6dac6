"""The contents of ``device.json``, apart from the code that reads it (``config.py``), which a board drops again."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class BrokerSettings:
    """Where and as whom to connect. ``tls`` is None or the path of the authorities' certificates, "" the system's.

    ``identity``: what the device's own certificate and key are called, less .crt and .key; None without them.
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
    """The validated file. ``wifi`` is a dict or None; all paths start with ``folder``, the file's.

    ``source``: a dict, of which `undertone_device.setup.config` knows only ``seconds``, `undertone_device.host.sources`
    the rest.
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
