"""`undertone init`: a server's folder, complete, so that doctor and serve work on it without editing."""

import json
from collections.abc import Mapping
from pathlib import Path

from undertone_aggregator import credentials
from undertone_aggregator.broker import mosquitto_limits
from undertone_aggregator.broker_options import EXTERNAL, MANAGED
from undertone_aggregator.home import CAMPAIGNS, SERVER
from undertone_aggregator.sample import sample_tables
from undertone_aggregator.signing import make_key
from undertone_shared.errors import Invalid
from undertone_shared.topics import DEFAULT_PREFIX

_UNIT = """\
[Unit]
Description=Undertone: aggregation of perturbed reports
Documentation=https://mosquitto.org/man/mosquitto-conf-5.html
After=network-online.target
Wants=network-online.target

[Service]
Type=notify
NotifyAccess=main
WatchdogSec=60
ExecStart={program} serve {folder} --health 127.0.0.1:9464
Restart=on-failure
RestartSec=5
User={user}
UMask=0077
ReadWritePaths={folder}
ProtectSystem=strict
ProtectHome=read-only
PrivateTmp=yes
PrivateDevices=yes
NoNewPrivileges=yes
ProtectKernelTunables=yes
ProtectKernelModules=yes
ProtectControlGroups=yes
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6
RestrictNamespaces=yes
LockPersonality=yes
CapabilityBoundingSet=
SystemCallArchitectures=native

[Install]
WantedBy=multi-user.target
"""
_COMPOSE = """\
# The broker beside a server on the host; `undertone serve` runs outside. Not tried with a Docker daemon.
services:
  mosquitto:
    image: eclipse-mosquitto:2
    restart: unless-stopped
    ports: ["{port}:{port}"]
    volumes:
      - ./mosquitto.conf:/mosquitto/config/mosquitto.conf:ro
      - ./passwords:/mosquitto/config/passwords:ro
      - ./access:/mosquitto/config/access:ro
{tls}      - mosquitto:/mosquitto/data
volumes:
  mosquitto: {{}}
"""


def initialise(folder: Path, *, managed: bool, host: str, authority: Path | None, user: str, program: str) -> list[str]:
    """Write the files; their names. ``authority``: the CA of a private TLS broker, its files in ``folder``/tls.

    Raises Invalid for a folder that is one already, OSError.
    """
    if (folder / SERVER).exists():
        raise Invalid(f"{folder / SERVER} exists already: nothing in it is replaced")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    (folder / CAMPAIGNS).mkdir(mode=0o700, exist_ok=True)
    make_key(folder / "signing.key")
    users = {name: credentials.new_password() for name in (credentials.AGGREGATOR, credentials.ANALYST)}
    for name, password in users.items():
        credentials.write_private(folder / f"{name}.password", password + "\n")
    workers = credentials.server_users(users[credentials.AGGREGATOR])
    credentials.write_passwords(folder / "passwords", {**users, **workers})
    credentials.write_access_rules(folder / "access", DEFAULT_PREFIX)
    port = 8883 if authority is not None else 1883
    options = {"path": '"stores"', "password_file": '"aggregator.password"', "passwords": '"passwords"'}
    if managed:
        options |= {"mode": f'"{MANAGED}"', "mosquitto_acl": '"access"'}
    else:
        del options["passwords"]
        options |= {"mode": f'"{EXTERNAL}"', "host": json.dumps(host), "port": str(port)}
        if authority is not None:
            options["ca_file"] = '"tls/ca.crt"'
        credentials.write_private(folder / "mosquitto.conf", _mosquitto(port, authority is not None))
        tls = "      - ./tls:/mosquitto/config/tls:ro\n" if authority is not None else ""
        credentials.write_private(folder / "compose.yaml", _COMPOSE.format(port=port, tls=tls))
    credentials.write_private(folder / SERVER, _chosen(sample_tables("broker", "store", "server"), options))
    unit = _UNIT.format(folder=folder.resolve(), user=user, program=program)
    credentials.write_private(folder / "undertone.service", unit)
    return sorted(path.name for path in folder.iterdir())


def _chosen(text: str, options: Mapping[str, str]) -> str:
    """The sample with these options set; each stands there, perhaps commented out."""
    lines = []
    for line in text.splitlines():
        name = line.removeprefix("# ").partition(" = ")[0]
        lines.append(f"{name} = {options[name]}" if " = " in line and name in options else line)
    return "\n".join(lines) + "\n"


def _mosquitto(port: int, tls: bool) -> str:
    lines = ["# For mosquitto 2; paths as compose.yaml mounts them.", f"listener {port}"]
    if tls:
        lines += [
            f"{name} /mosquitto/config/tls/server.{end}" for name, end in (("certfile", "crt"), ("keyfile", "key"))
        ]
    lines += ["password_file /mosquitto/config/passwords", "acl_file /mosquitto/config/access"]
    lines += ["persistence true", "persistence_location /mosquitto/data/", "autosave_interval 2", *mosquitto_limits()]
    return "\n".join(lines) + "\n"
