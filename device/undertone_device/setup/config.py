"""The device's configuration file, ``device.json``: its name, the broker, the campaigns, the source of readings.

::

    {"name": "meter-17",
     "broker": {"host": "broker.example", "port": 8883, "user": "meter-17", "password_file": "password",
                "tls": {"ca": "ca.crt"}, "keepalive": 60},
     "prefix": "undertone/v2", "campaigns": ["load"], "groups": {"load": "north"},
     "policy": "policy.json", "state": "state",
     "outbox": 96, "counter_modulus": 0, "source": {"kind": "file", "path": "/run/meter", "seconds": 60},
     "publish": {"in_flight": 4, "spread_percent": 50}, "wifi": {"ssid": "...", "password": "..."},
     "ntp": "pool.ntp.org"}

Needed: ``name``, ``broker.host``, ``campaigns``, ``policy``, ``state``. The user defaults to the name, the port to 8883
with ``tls`` and 1883 without. Only a policy with ``"insecure": true`` allows a broker without ``tls``.
``tls.identity``: path of the device's own certificate and key, without .crt and .key, if it has these instead of a
password. Paths are relative to the file's folder. ``outbox``: how many unacknowledged reports are kept; a further one
replaces the oldest. ``counter_modulus``: number at which the sensor's counter wraps around, 0 for never. ``publish``:
how many reports may be without an acknowledgement at a time, and the share of the next slot over which reports spread,
in percent. ``groups``: the device's group in a campaign, for a display that shows the group's mean. ``wifi`` and
``ntp`` are for boards. The limits on what the device may release are in the policy, not here.
"""

from undertone_device.core.ledger import DEFAULT_OUTBOX, LARGEST_OUTBOX
from undertone_device.mqtt.packets import DEFAULT_KEEPALIVE
from undertone_device.setup.storage import LARGEST_SECRET, read_bounded
from undertone_shared.checks import check_integer, check_object, parse_json
from undertone_shared.errors import Invalid
from undertone_shared.topics import DEFAULT_PREFIX, check_name, check_prefix

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

LARGEST = 8192

_NEEDED = ("name", "broker", "campaigns", "policy", "state")
_FIELDS = ("name broker prefix campaigns groups policy state outbox counter_modulus source publish wifi ntp").split()
_BROKER = ("host", "port", "user", "password", "password_file", "tls", "keepalive")


class BrokerSettings:
    """The broker's address and the credentials.

    ``tls``: None for no TLS, the path of the authorities' certificates, or "" for the system's authorities. ``places``:
    the addresses to try; that of the last hand-over comes first.

    ``identity``: path of the device's own certificate and key, without .crt and .key; None without them.
    """

    host: str
    port: int
    places: "list[tuple[str, int]]"
    user: str
    password: "str | None"
    password_file: "str | None"
    tls: "str | None"
    identity: "str | None"
    keepalive: int


class DeviceConfig:
    """The validated device.json. ``folder``: the file's folder, which relative paths have been joined to.

    ``successors``: the campaigns that a hand-over named. ``groups``: campaign -> the group of the device in it.
    ``source``: a dict, of which this module checks only ``seconds``; `undertone_device.host.sources` checks the rest.
    """

    folder: str
    name: str
    broker: BrokerSettings
    prefix: str
    campaigns: "tuple[str, ...]"
    successors: "tuple[str, ...]"
    groups: "dict[str, str]"
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


def check_text(name: str, value: "Any", most: int = 255, secret: bool = False) -> str:
    """Return ``value`` if it is text of 1 to ``most`` characters. Raises Invalid, which shows no ``secret`` value."""
    if not isinstance(value, str) or not 1 <= len(value) <= most or "\0" in value:
        shown = "wrong" if secret else repr(value)
        raise Invalid("%s is %s, expected text of 1 to %d characters" % (name, shown, most))
    return value


def _integer(fields: "dict[str, Any]", path: str, default: int, low: int, high: int) -> int:
    """Return the integer in a field of ``fields``. ``path``: the names of the objects around it and its own name, such
    as "broker.port".
    """
    return check_integer(path, fields.get(path.split(".")[-1], default), low, high)


def _no_text(name: str, value: "Any") -> "Any":
    """Return ``value``. Raises Invalid for a text, without showing the text, which may have a password in it."""
    if isinstance(value, str):
        raise Invalid("%s is text, expected an object" % name)
    return value


def _broker(value: "Any", name: str, folder: str) -> BrokerSettings:
    fields = check_object("broker", _no_text("broker", value), ("host",), _BROKER)
    broker = BrokerSettings()
    broker.host = check_text("broker.host", fields["host"])
    broker.tls = broker.identity = None
    if fields.get("tls") is not None:
        tls = check_object("broker.tls", fields["tls"], (), ("ca", "identity"))
        broker.tls = in_folder(folder, check_text("broker.tls.ca", tls["ca"])) if "ca" in tls else ""
        if "identity" in tls:
            broker.identity = in_folder(folder, check_text("broker.tls.identity", tls["identity"]))
    broker.port = _integer(fields, "broker.port", 1883 if broker.tls is None else 8883, 1, 65535)
    broker.places = [(broker.host, broker.port)]
    broker.user = check_text("broker.user", fields.get("user", name))
    broker.password = broker.password_file = None
    if "password" in fields:
        broker.password = check_text("broker.password", fields["password"], LARGEST_SECRET, True)
    if "password_file" in fields:
        if broker.password is not None:
            raise Invalid("broker has a password and a password_file, expected one of them")
        broker.password_file = in_folder(folder, check_text("broker.password_file", fields["password_file"]))
    broker.keepalive = _integer(fields, "broker.keepalive", DEFAULT_KEEPALIVE, 2, 65535)
    return broker


def parse_config(data: bytes, folder: str = "") -> DeviceConfig:
    """Parse the configuration in JSON bytes of a file in ``folder``. Raises Invalid, naming the field."""
    value = parse_json("the configuration", data, LARGEST)
    fields = check_object("the configuration", value, _NEEDED, _FIELDS)
    config = DeviceConfig()
    config.folder = folder
    config.name = check_name("name", fields["name"])
    config.broker = _broker(fields["broker"], config.name, folder)
    config.prefix = check_prefix(fields.get("prefix", DEFAULT_PREFIX))
    campaigns = fields["campaigns"]
    if not isinstance(campaigns, list) or not 1 <= len(campaigns) <= 8:
        raise Invalid("campaigns is %r, expected a list of 1 to 8 names" % (campaigns,))
    config.campaigns = tuple([check_name("campaigns[%d]" % i, campaigns[i]) for i in range(len(campaigns))])
    config.successors = ()
    groups = fields.get("groups", {})
    config.groups = check_object("groups", groups, (), groups)
    for name in config.groups:
        check_name("groups." + check_name("a campaign in groups", name), config.groups[name])
    config.policy = in_folder(folder, check_text("policy", fields["policy"]))
    config.state = in_folder(folder, check_text("state", fields["state"]))
    config.outbox = _integer(fields, "outbox", DEFAULT_OUTBOX, 1, LARGEST_OUTBOX)
    config.counter_modulus = _integer(fields, "counter_modulus", 0, 0, (1 << 30) - 1)
    publish = check_object("publish", fields.get("publish", {}), (), ("in_flight", "spread_percent"))
    config.in_flight = _integer(publish, "publish.in_flight", 4, 1, 100)
    config.spread_percent = _integer(publish, "publish.spread_percent", 50, 0, 90)
    source = fields.get("source", {})
    config.source = check_object("source", source, (), source)
    config.sample_seconds = _integer(source, "source.seconds", 0, 0, 7 * 86400)
    config.wifi = None
    if "wifi" in fields:
        config.wifi = check_object("wifi", _no_text("wifi", fields["wifi"]), ("ssid",), ("password",))
        check_text("wifi.ssid", config.wifi["ssid"], 64)
        if "password" in config.wifi:
            check_text("wifi.password", config.wifi["password"], 64, True)
    config.ntp = check_text("ntp", fields.get("ntp", "pool.ntp.org"))
    return config


def check(config: DeviceConfig) -> None:
    """Check that a board's configuration names no source but its sensor.py. Raises Invalid."""
    kind = config.source.get("kind", "board")
    if kind != "board":
        raise Invalid("source.kind is %r, expected 'board': samples come from sensor.py" % (kind,))


def in_folder(folder: str, path: str) -> str:
    """Return the path, joined to ``folder`` if it is relative."""
    return path if path[:1] == "/" or not folder else folder + "/" + path


def read_config(path: str) -> DeviceConfig:
    """Read the configuration in a file. Raises Invalid."""
    folder = path[: path.rindex("/")] if "/" in path[1:] else ""
    return parse_config(read_bounded(path, LARGEST), folder)
