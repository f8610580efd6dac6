"""``undertone init`` and ``undertone doctor``: make a server's folder, and examine it."""

import getpass
import json
import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from undertone_shared.checks import check_integer
from undertone_shared.errors import Invalid

_MARKS = {"ok": "ok     ", "warning": "warning", "failure": "FAILURE"}


def register(app: typer.Typer) -> None:
    """Add the commands to the application."""
    app.command("init")(init)
    app.command("doctor")(doctor)


def init(
    folder: Annotated[Path, typer.Argument(help="The server's folder, made if need be.")],
    managed: Annotated[
        bool, typer.Option("--managed", help="Run a private mosquitto on loopback; else one of your own.")
    ] = False,
    direct: Annotated[bool, typer.Option("--direct", help="No broker: devices connect to this server.")] = False,
    tls: Annotated[
        bool, typer.Option("--tls", help="Make a private authority, and a certificate of the broker or of this server.")
    ] = False,
    certificates: Annotated[
        bool, typer.Option("--certificates", help="With --direct --tls: devices have certificates, and no passwords.")
    ] = False,
    host: Annotated[
        str, typer.Option(help="The broker's name or address, or with --direct this server's, as devices reach it.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The broker's port; 8883 with TLS, 1883 without, if 0.")] = 0,
    audit: Annotated[bool, typer.Option("--audit", help="Keep a row for each report, for undertone verify.")] = False,
    health: Annotated[str, typer.Option(help="ADDRESS:PORT of /metrics, /healthz and /readyz.")] = "127.0.0.1:9464",
    page: Annotated[str | None, typer.Option(help="ADDRESS:PORT of the page; none if absent.")] = None,
) -> None:
    """Write a server's configuration, keys, passwords, broker files and systemd unit, ready to serve."""
    from undertone_aggregator.settings.broker_options import is_loopback
    from undertone_aggregator.settings.report_sources import DIRECT, EXTERNAL, MANAGED
    from undertone_operate.initialise import Wishes, initialise

    if managed and direct:
        raise Invalid("--managed and --direct exclude each other: a broker, or none")
    if certificates and not (direct and tls):
        raise Invalid("--certificates needs --direct and --tls; for a broker, see undertone provision --certificates")
    if direct and not tls and not is_loopback(host):
        raise Invalid(f"--host is {host!r} without --tls: passwords would cross the network in plain text")
    if managed and tls:
        raise Invalid("--managed is a broker on loopback, which needs no --tls")
    if (folder / "server.toml").exists():
        raise Invalid(f"{folder / 'server.toml'} exists already: nothing in it is replaced")
    check_integer("--port", port, 0, 65535)
    authority = _authority(folder, host) if tls else None
    program = (sys.executable, "-m", "undertone")
    user = getpass.getuser()
    mode = DIRECT if direct else MANAGED if managed else EXTERNAL
    wishes = Wishes(
        mode,
        host,
        authority,
        user,
        program,
        port=port,
        certificates=certificates,
        audit=audit,
        health=health,
        page=page,
    )
    names = initialise(folder, wishes)
    print(f"{folder}: {', '.join(names)}")
    if mode == EXTERNAL:
        print(f"the broker: mosquitto -c {shlex.quote(str(folder.resolve() / 'broker/mosquitto.conf'))} -d")
    there = shlex.quote(str(folder))
    print(f"next: undertone campaign create {there} NAME ...")
    print(f"      undertone devices add 20 --home {there} --campaign NAME")
    print(f"      undertone serve {there}, undertone doctor {there}")


def _authority(folder: Path, host: str) -> Path:
    """Make a private authority in tls/, and copy what the broker needs to broker/, without the authority's key."""
    from undertone_operate.authority import private_authority

    authority = private_authority(folder / "tls", host)
    broker = folder / "broker"
    broker.mkdir(mode=0o700, exist_ok=True)
    for name in ("server.crt", "server.key"):
        (folder / "tls" / name).rename(broker / name)
    return authority


def doctor(
    folder: Annotated[Path, typer.Argument(help="The server's folder.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Examine a server's folder, its machine and its broker; a server that runs is not disturbed. Exit 1 on failure."""
    from undertone_operate.doctor import examine
    from undertone_operate.doctor_broker import FAILURE

    findings = []
    for finding in examine(folder):
        findings.append(finding)
        if not as_json:
            fix = f" (fix: {finding.fix})" if finding.fix else ""
            print(f"{_MARKS[finding.result]} {finding.check}: {finding.sentence}{fix}", flush=True)
    if as_json:
        print(json.dumps([finding.row() for finding in findings]))
    if any(finding.result == FAILURE for finding in findings):
        raise typer.Exit(1)
