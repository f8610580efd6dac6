"""``python -m undertone_device run|status|reset-campaign --config FILE``: a device on a phone, a gateway, a Pi.

Exit codes: 0 done, 2 bad input or usage.
"""

import argparse
import json
import math
import sys
import time
from typing import Any

from undertone_device import clock, gateway, status
from undertone_device.assembly import read_policy
from undertone_device.config import read_config
from undertone_device.reporter import Reporter
from undertone_device.settings import Config
from undertone_device.storage import FileStorage, read_bounded
from undertone_device.tools import commands as tools
from undertone_shared.entropy import Entropy, EntropyError
from undertone_shared.errors import Invalid

# Streams are counted in rho; epsilon = rho + 2 sqrt(rho ln(1/delta)) is shown at delta = 2^-20.
_DELTA_BITS = 20


def main(argv: list[str]) -> int:
    """Run the command line; returns the exit code. Bad input is one sentence on stderr."""
    arguments = _parser().parse_args(argv)
    try:
        if arguments.command == "run":
            gateway.run(gateway.configurations(arguments.all) if arguments.all else [arguments.config], arguments.json)
            return 0
        if arguments.command in tools.NAMES:
            tools.run(arguments)
            return 0
        if arguments.command == "reset-campaign":
            return _reset(read_config(arguments.config), arguments.json)
        return _status(read_config(arguments.config), arguments.json)
    except (Invalid, EntropyError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="undertone device", description="A device on this machine.")
    commands = parser.add_subparsers(dest="command", required=True)
    for name, description in (
        ("run", "read, perturb and report until stopped by SIGTERM or Ctrl-C"),
        ("reset-campaign", "forget the accepted campaigns; every count of what was spent stays"),
        ("status", "what the device takes part in, what it costs in privacy, what it has refused"),
    ):
        command = commands.add_parser(name, help=description, description=description)
        which = command.add_mutually_exclusive_group(required=True)
        which.add_argument("--config", metavar="FILE", help="the device's configuration, JSON")
        if name == "run":
            which.add_argument("--all", metavar="DIR", help="every device.json of DIR and its folders, in one process")
        command.add_argument("--json", action="store_true", help="machine-readable lines")
    tools.add(commands)
    return parser


def _reset(config: Config, as_json: bool) -> int:
    storage = FileStorage(config.state)
    # Raises Invalid while the device runs.
    storage.claim()
    reporter = Reporter(config.name, read_policy(config), storage, Entropy(), clock.ticks)
    names = [campaign.name for campaign in (reporter.campaign, reporter.next_campaign) if campaign is not None]
    reporter.reset_campaign()
    print(
        json.dumps({"forgotten": names}) if as_json else f"forgotten: {', '.join(names) or 'no campaign was accepted'}"
    )
    return 0


def _status(config: Config, as_json: bool) -> int:
    data = read_bounded(f"{config.state}/{status.FILE}", status.LARGEST)
    state = status.parse_status(data)
    if as_json:
        print(json.dumps(state))
        return 0
    for line in explain(state):
        print(line)
    return 0


def explain(state: dict[str, Any]) -> list[str]:
    """The status in sentences, every epsilon with its guarantee."""
    cap = state["cap"]
    age = clock.unix_time() - state["time"]
    lines = [
        f"device      {state['device']}, status of {age} s ago, {'online' if state['online'] else 'offline'}",
    ]
    campaign = state["campaign"]
    if campaign is None:
        lines.append("campaign    none accepted: nothing is reported")
    else:
        theta = campaign["theta"]
        theta = "none yet (threshold rounds)" if theta is None else f"{theta} {campaign['unit']}"
        lines.append(f"campaign    {campaign['name']}, {campaign['measure']} of {campaign['sensor']}")
        lines.append(
            f"epoch       {campaign['epoch']} ({_date(campaign['epoch'])}), slots of {campaign['slot_seconds']} s,"
            f" fingerprint {campaign['fingerprint']}"
        )
        lines.append(f"threshold   {theta}, bound {campaign['bound']} {campaign['unit']}")
        for name in ("cohort", "report"):
            pair = campaign[f"{name}_certificate"]
            if pair is not None:
                lines.append(
                    f"certificate {name}: {pair[0]}/{pair[1]}, epsilon = {_epsilon(pair):.4f} per reading (event level)"
                )
        lines += _meaning(campaign, state)
    lines.append(f"owner's cap {cap[0]}/{cap[1]}, epsilon = {_epsilon(cap):.4f} per reading (event level)")
    lines.append(
        f"spent       {state['period_used']} of {state['period_limit']} reports in this period of"
        f" {state['period_seconds']} s, until {state['spent_until']} ({_date(state['spent_until'])})"
    )
    counts = state["counts"]
    lines.append(
        f"reports     {counts['acked']} acknowledged since the start, {state['outbox']} in the outbox,"
        f" {state['dropped']} dropped from a full one"
    )
    signers = state["signers"]
    lines.append(f"signers     {signers}" if signers else "signers     none: insecure, anybody's campaign is taken")
    refusals = ", ".join(f"{reason} {count}" for reason, count in sorted(state["refusals"].items()))
    lines.append(f"refused     {refusals or 'nothing'}")
    if state["paused"]:
        lines.append(f"paused      {state['paused']}")
    if state["trouble"]:
        lines.append(f"last event  {state['trouble']}")
    if state.get("source"):
        lines.append(f"source      {state['source']}: slots report the campaign's public default, perturbed")
    return lines


def _meaning(campaign: dict[str, Any], state: dict[str, Any]) -> list[str]:
    """What one report gives away, and what all of a day (or of a stream) do."""
    stream = campaign["stream"]
    if stream is not None:
        rho = stream["rho"][0] / stream["rho"][1]
        epsilon = rho + 2 * math.sqrt(rho * _DELTA_BITS * math.log(2))
        span = f"each window of {stream['renewal']} slots" if stream["renewal"] else "the whole campaign"
        return [
            f"meaning     a {stream['law']} stream: rho = {rho:.4g} (zCDP) for {span}, every reading in it together;"
            f" that is epsilon = {epsilon:.4g} at delta = 2^-{_DELTA_BITS} for the stream (user level)"
        ]
    certificates = (campaign["cohort_certificate"], campaign["report_certificate"])
    worst = max(_epsilon(pair) for pair in certificates if pair is not None)
    most = min(86400 // campaign["slot_seconds"], state["period_limit"] * -(-86400 // state["period_seconds"]))
    return [
        f"meaning     whoever sees one report can tell any two values of that reading apart by a factor of at most"
        f" e^{worst:.4f}; a day of {most} readings adds up to epsilon = {most * worst:.2f} for the household"
        " (user level, one day)"
    ]


def _epsilon(pair: list[int]) -> float:
    return math.log(pair[0] / pair[1])


def _date(seconds: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(seconds))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
