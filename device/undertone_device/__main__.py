"""``python -m undertone_device run|status --config device.json``: a device on a phone, a gateway, a Raspberry Pi.

Exit codes: 0 done, 2 bad input or usage.
"""

import argparse
import json
import math
import signal
import sys
import time
from typing import Any

from undertone_device import assembly, clock, sources, status
from undertone_device.config import read_config
from undertone_device.paho_transport import PahoTransport
from undertone_device.settings import Config
from undertone_device.storage import FileStorage, read_bounded
from undertone_shared.entropy import EntropyError
from undertone_shared.errors import Invalid

_STATUS_SECONDS = 10
_STEP_MILLISECONDS = 250
_FINISH_MILLISECONDS = 2000
# Streams are counted in rho; epsilon = rho + 2 sqrt(rho ln(1/delta)) is shown at delta = 2^-20.
_DELTA_BITS = 20


def main(argv: list[str]) -> int:
    """Run the command line; returns the exit code. Bad input is one sentence on stderr."""
    arguments = _parser().parse_args(argv)
    try:
        config = read_config(arguments.config)
        if arguments.command == "run":
            return _run(config, arguments.json)
        return _status(config, arguments.json)
    except (Invalid, EntropyError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="undertone device", description="A device on this machine.")
    commands = parser.add_subparsers(dest="command", required=True)
    for name, description in (
        ("run", "read, perturb and report until stopped by SIGTERM or Ctrl-C"),
        ("status", "what the device takes part in, what it costs in privacy, what it has refused"),
    ):
        command = commands.add_parser(name, help=description, description=description)
        command.add_argument("--config", required=True, metavar="FILE", help="the device's configuration, JSON")
        command.add_argument("--json", action="store_true", help="machine-readable lines")
    return parser


def _run(config: Config, as_json: bool) -> int:
    policy = assembly.read_policy(config)
    read = sources.make_read(config)
    lines = sources.open_lines(config)
    broker = config.broker
    transport = PahoTransport(
        broker.host,
        broker.port,
        config.name,
        broker.user,
        assembly.read_password(broker),
        broker.keepalive,
        assembly.tls_context(broker, policy),
    )
    client = assembly.make_client(config, policy, transport, clock.unix_time, clock.ticks, clock.sleep_ms, read)
    stopped: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda received, frame: stopped.append(received))
    storage = FileStorage(config.state)
    written: dict[str, Any] = {}
    written_at = -_STATUS_SECONDS
    said = ""
    _say(as_json, f"{config.name}: started, broker {broker.host}:{broker.port}")
    while not stopped:
        if lines is not None:
            now = clock.unix_time()
            for sample in lines.arrived():
                try:
                    client.reporter.observe(sample, now)
                except Invalid:
                    lines.bad += 1
        client.step(_STEP_MILLISECONDS)
        now = clock.unix_time()
        state = status.describe(client, now)
        sentence = _sentence(state)
        if sentence != said:
            _say(as_json, f"{config.name}: {sentence}")
        elif 0 <= now - written_at < _STATUS_SECONDS or state == dict(written, time=now):
            continue
        said = sentence
        # Kept as it was written: the counters in the state itself go on counting.
        text = json.dumps(state)
        storage.write(status.FILE, text.encode())
        written, written_at = json.loads(text), now
    client.finish(_FINISH_MILLISECONDS)
    storage.write(status.FILE, json.dumps(status.describe(client, clock.unix_time())).encode())
    _say(as_json, f"{config.name}: stopped, {len(client.reporter.outbox)} reports wait in the outbox")
    return 0


def _say(as_json: bool, sentence: str) -> None:
    print(json.dumps({"time": clock.unix_time(), "event": sentence}) if as_json else sentence, flush=True)


def _sentence(state: dict[str, Any]) -> str:
    """One line that changes only when something worth reading does."""
    campaign = state["campaign"]
    parts = ["online" if state["online"] else "offline"]
    parts.append(f"campaign {campaign['name']} epoch {campaign['epoch']}" if campaign else "no campaign")
    if state["paused"]:
        parts.append(f"paused: {state['paused']}")
    if state["trouble"]:
        parts.append(state["trouble"])
    return ", ".join(parts)


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
    refusals = ", ".join(f"{reason} {count}" for reason, count in sorted(state["refusals"].items()))
    lines.append(f"refused     {refusals or 'nothing'}")
    if state["paused"]:
        lines.append(f"paused      {state['paused']}")
    if state["trouble"]:
        lines.append(f"last event  {state['trouble']}")
    return lines


def _meaning(campaign: dict[str, Any], state: dict[str, Any]) -> list[str]:
    """What one report gives away, and what all of a day (or of a stream) do."""
    stream = campaign["stream"]
    if stream is not None:
        rho = stream["rho"][0] / stream["rho"][1]
        epsilon = rho + 2 * math.sqrt(rho * _DELTA_BITS * math.log(2))
        span = f"each window of {stream['renewal']} slots" if stream["renewal"] else "the whole campaign"
        return [
            f"meaning     a {stream['kind']} stream: rho = {rho:.4g} (zCDP) for {span}, every reading in it together;"
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
