"""What ``device.json`` says, without the code that reads it (`undertone_device.config`), which a board drops again."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


# How many unacknowledged reports a device keeps unless it is told, and at most: 24 bytes each, in RAM and on file.
DEFAULT_OUTBOX = 96
LARGEST_OUTBOX = 4096


class Broker:
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


class Config:
    """The validated file. ``wifi`` is a dict or None; all paths start with ``folder``, the file's.

    ``source``: a dict, of which `undertone_device.config` knows only ``seconds``, `undertone_device.host.sources`
    the rest.
    """

    folder: str
    name: str
    broker: Broker
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
