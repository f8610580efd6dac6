"""The addresses of the brokers: from the configuration, and in the form in which workers on other machines get them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from undertone_aggregator.base.files import read_secret
from undertone_aggregator.mqtt.link import Address
from undertone_aggregator.settings.broker_options import BrokerOptions, is_loopback
from undertone_aggregator.settings.config import Config
from undertone_aggregator.settings.outlet_options import OutletOptions
from undertone_shared.errors import Invalid

PLAIN_PORT = 1883
TLS_PORT = 8883
WEBSOCKET_PORT = 8443
WEBSOCKET_PATH = "/mqtt"


def external_addresses(config: Config) -> list[Address]:
    """Return the addresses of the external brokers.

    They use TLS if ``ca_file`` is configured, or if the broker is on another machine and ``insecure`` is not set.
    Raises Invalid.
    """
    settings = config.broker
    return [
        replace(_address(config, settings, host, port or settings.port), worker_users=settings.worker_users)
        for host, port in settings.places
    ]


def outlet_address(config: Config) -> Address | None:
    """Return the address of the broker that gets the estimates of mode direct; None without one. Raises Invalid."""
    settings = config.outlet
    return None if settings.host is None else _address(config, settings, settings.host, settings.port)


def _address(config: Config, settings: BrokerOptions | OutletOptions, host: str, port: int) -> Address:
    assert settings.user is not None
    assert settings.password_file is not None
    tls = settings.ca_file is not None or not (settings.insecure or is_loopback(host))
    password_file = config.secret(settings.password_file)
    return Address(
        host,
        port or (TLS_PORT if tls else PLAIN_PORT),
        settings.user,
        read_secret(password_file),
        None if settings.ca_file is None else config.path(settings.ca_file),
        settings.keepalive,
        tls,
        password_file=password_file,
    )


def brokers_as_json(addresses: Sequence[Address]) -> dict[str, Any]:
    """Return the brokers' addresses as JSON for workers on other machines, without passwords and certificates."""
    first = addresses[0]
    return {
        "brokers": [[address.host, address.port, address.tls] for address in addresses],
        "user": first.user,
        "worker_users": first.worker_users,
        "keepalive": first.keepalive,
        "authority": first.ca_file is not None,
    }


def addresses_from_json(brokers: Mapping[str, Any], password_file: Path, ca_file: Path | None) -> list[Address]:
    """Return the brokers that `brokers_as_json` described. Raises Invalid."""
    if brokers["authority"] and ca_file is None:
        raise Invalid("a private authority signed the brokers' certificates: name its certificate file by --ca-file")
    password = read_secret(password_file)
    return [
        Address(
            host,
            port,
            brokers["user"],
            password,
            ca_file if tls else None,
            brokers["keepalive"],
            tls,
            brokers["worker_users"],
            password_file,
        )
        for host, port, tls in brokers["brokers"]
    ]
