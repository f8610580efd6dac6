"""The TLS files of the listener at which people join."""

from pathlib import Path

from undertone_aggregator.mqtt.endpoint.listener import Listener
from undertone_aggregator.settings.broker_options import BrokerOptions
from undertone_aggregator.settings.join_options import JoinOptions
from undertone_shared.errors import Invalid


def tls_listener(folder: Path, options: JoinOptions, broker: BrokerOptions) -> Listener:
    """Return the TLS files of the listener: those of [join], or else those of [broker]. Raises Invalid without any."""
    certificate, key = options.certificate or broker.certificate, options.key or broker.key
    if certificate is None or key is None:
        raise Invalid("certificate is missing in [join], expected a certificate and its key, there or in [broker]")
    return Listener(certificate=folder / certificate, key=folder / key)
