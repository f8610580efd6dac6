"""Sources of a phone's or gateway's samples: integers in the campaign's unit. CPython only.

``source.kind`` of device.json names a kind of source. A module describes its kinds in its table ``KINDS``: the function
that opens each of them, and a check for each of its fields. ``docs/sensors.md`` shows a complete module.
"""

from importlib import import_module

from undertone_device.host.sources import fields
from undertone_device.host.sources.fields import Fields
from undertone_device.host.sources.source import Kind, Plausible, SensorSource
from undertone_device.setup.config import DeviceConfig
from undertone_shared.errors import Invalid

# The modules of this folder that describe kinds of sources.
MODULES = [
    "buses",
    "files",
    "mbus",
    "network",
]


def kinds() -> dict[str, Kind]:
    """Return every kind of source by its name."""
    table: dict[str, Kind] = {}
    for module in MODULES:
        described: dict[str, Kind] = import_module(f"{__name__}.{module}").KINDS
        if twice := table.keys() & described.keys():
            raise ValueError(f"two modules describe the source {', '.join(sorted(twice))}")
        table.update(described)
    return table


def parse_fields(config: DeviceConfig) -> tuple[Kind, Fields]:
    """Return the kind of the configuration's source and its checked fields. Raises Invalid, naming the field."""
    if not config.source:
        raise Invalid(
            "source is missing or empty, expected where samples come from, for example"
            ' "source": {"kind": "file", "path": "/run/meter/energy_wh", "seconds": 60};'
            " docs/gateway.md lists the other kinds"
        )
    name = config.source.get("kind")
    if name == "board":
        raise Invalid("source.kind is 'board', which only main.py on a board offers")
    table = kinds()
    if not isinstance(name, str) or name not in table:
        raise Invalid(f"source.kind is {name!r}, expected one of {', '.join(sorted(table))}")
    kind = table[name]
    # The client, not the source, uses the field ``seconds``. Every kind of source may have the field ``range``.
    own = {field: value for field, value in config.source.items() if field not in ("kind", "seconds")}
    optional = kind.optional | {"range": fields.interval}
    return kind, fields.parse_object("source", own, config.folder, kind.needed, optional)


def open_source(config: DeviceConfig) -> SensorSource:
    """Open the configuration's source. Raises Invalid, naming the field, also for a source that can never be opened.

    A port or a socket that may be unplugged is opened when it is read, and again after it was gone.
    """
    kind, checked = parse_fields(config)
    return Plausible(kind.open(checked), checked.get("range"), checked.get("twice", False))
