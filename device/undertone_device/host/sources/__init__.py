"""Where a phone's or gateway's samples come from: integers in the campaign's unit. CPython only.

`open_source` reads the configuration's ``source``, whose ``kind`` names one entry of one table; each module lists its
kinds there.
"""

from undertone_device.host.sources import buses, files, network
from undertone_device.host.sources.source import Kind, Plausible, SensorSource, parse_fields
from undertone_device.setup.settings import DeviceConfig
from undertone_shared.errors import Invalid

_KINDS: dict[str, Kind] = dict(files.KINDS, **buses.KINDS, **network.KINDS)


def open_source(config: DeviceConfig) -> SensorSource:
    """The configuration's source, opened. Raises Invalid, the field named, also for what cannot be opened at all.

    What may be unplugged (a port, a socket) is opened when it is read, and again after it was gone.
    """
    if not config.source:
        raise Invalid("the configuration has no field 'source', expected where samples come from")
    kind = config.source.get("kind")
    if kind == "board":
        raise Invalid("source.kind is 'board', which only main.py on a board offers")
    if not isinstance(kind, str) or kind not in _KINDS:
        raise Invalid(f"source.kind is {kind!r}, expected one of {', '.join(sorted(_KINDS))}")
    fields = parse_fields(config, _KINDS[kind])
    source = _KINDS[kind].open(fields)
    return Plausible(source, fields.get("range"), fields.get("twice", False))
