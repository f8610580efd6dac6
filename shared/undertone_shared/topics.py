"""MQTT topics: ``<prefix>/<campaign>/config``, ``.../<shard>/<device>/report``, ``.../aggregate/<series>``."""

import hashlib

from undertone_shared.errors import Invalid

DEFAULT_PREFIX = "undertone/v2"
SHARDS = 64
_NAME = "abcdefghijklmnopqrstuvwxyz0123456789-"


def check_name(field: str, name: str) -> str:
    """Return ``name`` if it matches [a-z0-9-]{1,32}. Raises Invalid naming the field otherwise."""
    if not isinstance(name, str) or not 1 <= len(name) <= 32 or name.strip(_NAME):
        raise Invalid("%s is %r, expected 1 to 32 characters of a-z, 0-9 and -" % (field, name))
    return name


def check_prefix(prefix: str) -> str:
    """Return ``prefix`` if each of its levels is a name. Raises Invalid otherwise."""
    for level in prefix.split("/") if isinstance(prefix, str) else [prefix]:
        check_name("a level of the prefix", level)
    return prefix


def shard(device: str) -> int:
    """Return sha256(device name)[0] mod 64, by which the server's workers share the fleet without common state."""
    return hashlib.sha256(device.encode()).digest()[0] % SHARDS


def config_topic(prefix: str, campaign: str) -> str:
    """Return the topic of the retained campaign."""
    return "%s/%s/config" % (prefix, campaign)


def report_topic(prefix: str, campaign: str, device: str) -> str:
    """Return the topic of a device's reports."""
    return "%s/%s/%d/%s/report" % (prefix, campaign, shard(device), device)
