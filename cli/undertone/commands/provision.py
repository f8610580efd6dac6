"""``undertone provision``: write the files of a new fleet."""

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from undertone_shared.errors import Invalid

if TYPE_CHECKING:
    from undertone_aggregator.settings.config import Config
    from undertone_operate.provision import Target


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("provision")(run)


def run(
    plan: Annotated[Path, typer.Option(help="The campaign's file, TOML.")],
    devices: Annotated[int, typer.Option(help="Number of devices.")],
    output: Annotated[Path, typer.Option(help="Folder for the files; the command never replaces an existing fleet.")],
    host: Annotated[
        str | None, typer.Option(help="The broker's name or address for devices (default: the configuration's).")
    ] = None,
    port: Annotated[int | None, typer.Option(help="The broker's port (default: the configuration's).")] = None,
    ca_file: Annotated[
        Path | None, typer.Option(help="Certificate of the authority that signed the broker's certificate.")
    ] = None,
    private_ca: Annotated[
        bool, typer.Option("--private-ca", help="Create an authority and a certificate for the broker.")
    ] = False,
    certificates: Annotated[
        bool,
        typer.Option("--certificates", help="With --private-ca: give each device a certificate instead of a password."),
    ] = False,
    insecure: Annotated[bool, typer.Option("--insecure", help="Use MQTT without TLS; for loopback only.")] = False,
    absence: Annotated[
        str | None,
        typer.Option(
            help="Longest absence of the server, such as 2d, for which devices keep reports (default: 96 reports)."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Write the names, passwords, policies and configurations of a fleet, and its broker's password and ACL files.

    Each policy allows the campaign's ε and nothing more.
    """
    from undertone_aggregator.base.durations import seconds_of
    from undertone_aggregator.settings.config import read_config
    from undertone_operate.provision import checked_names, life_sentence, outbox_for, policy_of, provision

    config = read_config(plan)
    direct = not config.broker.source.broker
    if certificates and not private_ca:
        raise Invalid("--certificates needs --private-ca, the authority that signs them")
    target = replace(_target(config, output, host, port, ca_file, private_ca, insecure), certificates=certificates)
    names = checked_names(config.campaign.sensor, devices)
    policy = policy_of(config, target)
    outbox = None if absence is None else outbox_for(config.campaign, seconds_of("absence", absence))
    provision(config, names, output, target, policy, outbox)
    (p, q), sensor = policy["cap"], config.campaign.sensor
    if as_json:
        facts = {"devices": names, "folder": str(output), "cap": [p, q], "lifetime": policy["lifetime"]}
        print(json.dumps({**facts, "tls": target.authority is not None}))
        return
    print(f"{devices} devices in {output / 'devices'}: {names[0]} to {names[-1]}")
    if "stream" in policy:
        rho, seconds = policy["stream"]["rho"], policy["stream"]["period_seconds"]
        print(f"each device may spend rho = {rho / (1 << 20):.5f} on streams of {sensor} in {seconds} seconds")
    print(f"each device may spend epsilon = ln({p}/{q}) per reading (event level) on {sensor}, and no more")
    print(life_sentence(policy))
    key = config.path(config.server.signing_key)
    print(f"each device accepts only campaigns that {key} signs: {policy['signers'][0]}")
    if outbox is not None:
        print(
            f"each device keeps its newest {outbox} reports, {24 * outbox:,} bytes, while the server is away: {absence}"
        )
        print("a device that restarts while the server is away draws nothing until it hears from the server")
    print(f"for mosquitto: password_file {output / 'passwords'}, acl_file {output / 'access'}")
    if private_ca:
        tls = output / "tls"
        print(f"TLS: cafile {tls / 'ca.crt'}, certfile {tls / 'server.crt'}, keyfile {tls / 'server.key'}")
        if certificates:
            print(_where_certificates(direct, output))
    elif target.authority is None:
        print("no TLS: the policies allow insecure connections, fit for loopback only")


def _where_certificates(direct: bool, output: Path) -> str:
    if direct:
        return f"in [broker]: ca_file = {str(output / 'tls/ca.crt')!r}, which the endpoint needs to verify the devices"
    options = f"require_certificate true, use_identity_as_username true, crlfile {output / 'tls/ca.crl'}"
    return f"in that listener: {options}; the server needs another"


def _target(
    config: "Config",
    output: Path,
    host: str | None,
    port: int | None,
    ca_file: Path | None,
    private_ca: bool,
    insecure: bool,
) -> "Target":
    from undertone_operate.provision import target_of

    if sum((ca_file is not None, private_ca, insecure)) > 1:
        raise Invalid("--ca-file, --private-ca and --insecure exclude each other")
    if not private_ca:
        return target_of(config, host, port, ca_file, insecure=insecure)
    if (output / "devices").exists():
        raise Invalid(f"{output / 'devices'} exists already, expected an empty folder")
    from undertone_operate.authority import private_authority

    host = host or config.broker.host
    return target_of(config, host, port, private_authority(output / "tls", host))
