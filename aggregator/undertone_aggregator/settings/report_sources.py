"""The ways in which reports come to the server: [broker] mode names one of these. A new way is a line in this
module.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class SourceKind:
    """A way in which reports come, and what other parts of the server have to know of it.

    ``module``, ``opener``: name a function of (configuration, journal). It returns a context manager that gives a
    `undertone_aggregator.mqtt.source.Source`. ``help``: a line for the configuration's sample.
    """

    module: str
    opener: str
    help: str
    # True if a broker is between the devices and this server, and keeps reports while the server is away. Without one
    # the server authenticates the devices itself, and each campaign has one worker.
    broker: bool


DIRECT, EXTERNAL = "direct", "external"
_MODULE = "undertone_aggregator.mqtt.source"

SOURCES = {
    DIRECT: SourceKind(
        _MODULE,
        "direct_endpoint",
        "devices connect to this server, whose acknowledgement means that a report is stored",
        broker=False,
    ),
    EXTERNAL: SourceKind(
        _MODULE, "external_broker", "devices connect to a broker, at `host` or one of `hosts`", broker=True
    ),
}
