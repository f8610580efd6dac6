"""``undertone provision``: a fleet's files before its first report."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from undertone_shared.checks import check_integer
from undertone_shared.errors import Invalid

if TYPE_CHECKING:
    from undertone_aggregator.config import Config
    from undertone_simulator.provision import Target

_TLS_PORT = 8883
_PLAIN_PORT = 1883


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("provision")(run)


def run(
    campaign: Annotated[Path, typer.Option(help="the aggregator's configuration, TOML")],
    devices: Annotated[int, typer.Option(help="how many devices")],
    out: Annotated[Path, typer.Option(help="folder for the files; a fleet in it is never replaced")],
    host: Annotated[
        str | None, typer.Option(help="the broker as devices reach it; the configuration's if absent")
    ] = None,
    port: Annotated[int | None, typer.Option(help="its port; the configuration's if absent")] = None,
    ca: Annotated[Path | None, typer.Option(help="certificate of the authority that signed the broker's")] = None,
    private_ca: Annotated[
        bool, typer.Option("--private-ca", help="make an authority and the broker's certificate")
    ] = False,
    insecure: Annotated[bool, typer.Option("--insecure", help="MQTT without TLS, for loopback only")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """Write names, passwords, policies and configurations of a fleet, and its broker's password and ACL files.

    Each policy allows the campaign's epsilon and nothing more.
    """
    from undertone_aggregator.config import read_config
    from undertone_simulator.provision import checked_names, make_policy, provision, signers, stream_policy

    config = read_config(campaign)
    target = _target(config, out, host, port, ca, private_ca, insecure)
    names = checked_names(config.campaign.sensor, devices)
    allowed = {"signers": signers(config), **stream_policy(config)}
    policy = make_policy(config.campaign, insecure=target.authority is None, **allowed)
    provision(config, names, out, target, policy)
    p, q = policy["cap"]
    if as_json:
        print(json.dumps({"devices": names, "folder": str(out), "cap": [p, q], "tls": target.authority is not None}))
        return
    print(f"{devices} devices in {out / 'devices'}: {names[0]} to {names[-1]}")
    if "stream" in policy:
        rho, seconds = policy["stream"]["rho"], policy["stream"]["period_seconds"]
        print(f"each may spend rho = {rho / (1 << 20):.5f} on streams of {config.campaign.sensor} in {seconds} seconds")
    print(f"each may spend epsilon = ln({p}/{q}) per reading (event level) on {config.campaign.sensor}, and no more")
    print(f"each takes campaigns alone that {config.path(config.server.signing_key)} signs: {policy['signers'][0]}")
    print(f"for mosquitto: password_file {out / 'passwords'}, acl_file {out / 'access'}")
    if private_ca:
        print(f"TLS: cafile {out / 'tls/ca.crt'}, certfile {out / 'tls/server.crt'}, keyfile {out / 'tls/server.key'}")
    elif target.authority is None:
        print("no TLS: the policies say insecure, fit for loopback only")


def _target(
    config: "Config", out: Path, host: str | None, port: int | None, ca: Path | None, private_ca: bool, insecure: bool
) -> "Target":
    from undertone_aggregator.broker import HOST
    from undertone_aggregator.broker_options import DIRECT, MANAGED, is_loopback
    from undertone_simulator.provision import Target

    broker = config.broker
    if sum((ca is not None, private_ca, insecure)) > 1:
        raise Invalid("--ca, --private-ca and --insecure exclude each other")
    managed = broker.mode == MANAGED
    host = host or (HOST if managed else broker.host)
    local = managed or (broker.mode == DIRECT and broker.certificate is None)
    plain = insecure or (local and is_loopback(host) and not private_ca and ca is None)
    if ca is None and not private_ca and not plain:
        if broker.ca_file is None:
            raise Invalid("devices need TLS: give --ca or --private-ca, or --insecure for a demonstration on loopback")
        ca = config.path(broker.ca_file)
    port = port or broker.port or (0 if managed else _PLAIN_PORT if plain else _TLS_PORT)
    if not port:
        raise Invalid("the broker's port is not known: set port in [broker], or give --port")
    check_integer("--port", port, 1, 65535)
    if plain:
        return Target(host, port, None)
    if private_ca:
        if (out / "devices").exists():
            raise Invalid(f"{out / 'devices'} exists already: provision into an empty folder")
        from undertone_simulator.authority import private_authority

        return Target(host, port, private_authority(out / "tls", host))
    if ca is None or not ca.is_file():
        raise Invalid(f"{ca} is not a file, expected the authority's certificate")
    return Target(host, port, ca)
