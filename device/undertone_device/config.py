"""The device's configuration file, ``device.json``: who it is, which broker, which campaigns, where readings come from.

::

    {"name": "meter-17",
     "broker": {"host": "broker.example", "port": 8883, "user": "meter-17", "password_file": "password",
                "tls": {"ca": "ca.pem"}, "keepalive": 60},
     "prefix": "undertone/v1", "campaigns": ["load"], "policy": "policy.json", "state": "state",
     "source": {"kind": "file", "path": "/run/meter", "seconds": 60}}

Needed: ``name``, ``broker.host``, ``campaigns``, ``policy``, ``state``. The user defaults to the name, the port to 8883
with ``tls`` and 1883 without, which only a policy with ``"insecure": true`` allows. Paths are relative to the file's
folder. What the device may release is not here but in the policy.
"""

import json

from undertone_device.packets import DEFAULT_KEEPALIVE
from undertone_shared.checks import check_integer, check_object
from undertone_shared.errors import Invalid
from undertone_shared.topics import DEFAULT_PREFIX, check_name, check_prefix

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

LARGEST = 8192
LARGEST_SECRET = 1024

_FIELDS = ("name broker prefix campaigns policy state counter_modulus source publish wifi ntp").split()
_BROKER = ("host", "port", "user", "password", "password_file", "tls", "keepalive")
# kind of source: its required and its optional fields
SOURCES = {
    "constant": (("value",), ()),
    "file": (("path",), ()),
    "command": (("command",), ("timeout_seconds",)),
    "list": (("path",), ()),
    "stdin": ((), ()),
    "fifo": (("path",), ()),
    "board": ((), ()),
}


def _known(name: str, value: "Any", fields: "Sequence[str]", needed: "Sequence[str]") -> "dict[str, Any]":
    if not isinstance(value, dict):
        raise Invalid("%s is %r, expected an object" % (name, value))
    check_object(name, value, tuple(f for f in fields if f in value or f in needed))
    return value


def _text(name: str, value: "Any", most: int = 255) -> str:
    if not isinstance(value, str) or not 1 <= len(value) <= most or "\0" in value:
        raise Invalid("%s is %r, expected text of 1 to %d characters" % (name, value, most))
    return value


class Broker:
    """Where and as whom to connect. ``tls`` is None or the path of the authorities' certificates, "" the system's."""

    def __init__(self, value: "Any", name: str, folder: str):
        fields = _known("broker", value, _BROKER, ("host",))
        self.host = _text("broker.host", fields["host"])
        self.tls: str | None = None
        if fields.get("tls") is not None:
            tls = _known("broker.tls", fields["tls"], ("ca",), ())
            self.tls = _path(folder, _text("broker.tls.ca", tls["ca"])) if "ca" in tls else ""
        self.port = check_integer("broker.port", fields.get("port", 1883 if self.tls is None else 8883), 1, 65535)
        self.user = _text("broker.user", fields.get("user", name))
        self.password: str | None = None
        self.password_file: str | None = None
        if "password" in fields:
            self.password = _text("broker.password", fields["password"], LARGEST_SECRET)
        if "password_file" in fields:
            if self.password is not None:
                raise Invalid("broker has a password and a password_file, expected one of them")
            self.password_file = _path(folder, _text("broker.password_file", fields["password_file"]))
        self.keepalive = check_integer("broker.keepalive", fields.get("keepalive", DEFAULT_KEEPALIVE), 2, 65535)


class Config:
    """The validated file. ``source`` and ``wifi`` are dicts or None; all paths start with the file's folder."""

    def __init__(self, value: "Any", folder: str):
        fields = _known("the configuration", value, _FIELDS, ("name", "broker", "campaigns", "policy", "state"))
        self.name = check_name("name", fields["name"])
        self.broker = Broker(fields["broker"], self.name, folder)
        self.prefix = check_prefix(fields.get("prefix", DEFAULT_PREFIX))
        campaigns = fields["campaigns"]
        if not isinstance(campaigns, list) or not 1 <= len(campaigns) <= 8:
            raise Invalid("campaigns is %r, expected a list of 1 to 8 names" % (campaigns,))
        self.campaigns = tuple([check_name("campaigns[%d]" % i, campaigns[i]) for i in range(len(campaigns))])
        self.policy = _path(folder, _text("policy", fields["policy"]))
        self.state = _path(folder, _text("state", fields["state"]))
        self.counter_modulus = check_integer("counter_modulus", fields.get("counter_modulus", 0), 0, (1 << 30) - 1)
        publish = _known("publish", fields.get("publish", {}), ("in_flight", "spread_percent"), ())
        self.in_flight = check_integer("publish.in_flight", publish.get("in_flight", 4), 1, 100)
        self.spread_percent = check_integer("publish.spread_percent", publish.get("spread_percent", 50), 0, 90)
        self.sample_seconds = 0
        self.source: dict[str, Any] | None = None
        if "source" in fields:
            self._set_source(fields["source"], folder)
        self.wifi: dict[str, Any] | None = None
        if "wifi" in fields:
            self.wifi = _known("wifi", fields["wifi"], ("ssid", "password"), ("ssid",))
            for name in self.wifi:
                _text("wifi." + name, self.wifi[name], 64)
        self.ntp = _text("ntp", fields.get("ntp", "pool.ntp.org"))

    def _set_source(self, value: "Any", folder: str) -> None:
        kind = value.get("kind") if isinstance(value, dict) else None
        if not isinstance(kind, str) or kind not in SOURCES:
            raise Invalid("source.kind is %r, expected one of %s" % (kind, ", ".join(sorted(SOURCES))))
        needed, optional = SOURCES[kind]
        source = _known("source", value, ("kind", "seconds") + needed + optional, needed)
        self.sample_seconds = check_integer("source.seconds", source.get("seconds", 0), 0, 7 * 86400)
        source = dict(source)
        if "path" in source:
            source["path"] = _path(folder, _text("source.path", source["path"]))
        if "value" in source:
            check_integer("source.value", source["value"], -(1 << 30) + 1, (1 << 30) - 1)
        if kind == "command":
            command = source["command"]
            if not isinstance(command, list) or not 1 <= len(command) <= 64:
                raise Invalid("source.command is %r, expected a list of 1 to 64 words" % (command,))
            for i in range(len(command)):
                _text("source.command[%d]" % i, command[i], 1024)
            source["timeout_seconds"] = check_integer(
                "source.timeout_seconds", source.get("timeout_seconds", 10), 1, 3600
            )
        self.source = source


def _path(folder: str, path: str) -> str:
    return path if path[:1] == "/" or not folder else folder + "/" + path


def parse_config(data: bytes, folder: str = "") -> Config:
    """The configuration in JSON bytes of a file in ``folder``. Raises Invalid, the field named."""
    if len(data) > LARGEST:
        raise Invalid("the configuration has %d bytes or more, expected at most %d" % (len(data), LARGEST))
    try:
        value = json.loads(data)
    except (ValueError, RuntimeError):
        raise Invalid("the configuration is not JSON")
    return Config(value, folder)


def read_bounded(path: str, most: int) -> bytes:
    """At most ``most`` + 1 bytes of a file. Raises Invalid naming the file if it cannot be read."""
    try:
        with open(path, "rb") as file:
            return file.read(most + 1)
    except OSError as error:
        raise Invalid("%s cannot be read: %s" % (path, error))


def read_config(path: str) -> Config:
    """The configuration in a file. Raises Invalid."""
    folder = path[: path.rindex("/")] if "/" in path[1:] else ""
    return parse_config(read_bounded(path, LARGEST), folder)
