"""What the household sees and decides: the status in sentences, with every cost in privacy, and its pauses."""

import math
import time
from typing import Any

from undertone_device.core import pauses
from undertone_device.core.pauses import ENDLESS
from undertone_device.core.units import UNIT
from undertone_device.host import consent, status
from undertone_device.host.words import read_words
from undertone_device.setup import assembly, clock
from undertone_device.setup.config import DeviceConfig
from undertone_device.setup.storage import FileStorage, read_bounded
from undertone_shared.errors import Invalid
from undertone_shared.policy import Policy

# Streams are counted in rho; epsilon = rho + 2 sqrt(rho ln(1/delta)) is shown at delta = 2^-20.
_DELTA_BITS = 20
_DAY = 86400
# Why a device is silent: its word -> a sentence.
WHY = {
    "ahead": "the clock was set back into a slot that had ended",
    "boots": "the device has started too often today (UTC)",
    "chains": "the stream may not start again in this window",
    "clock": "this clock and the server's do not agree, or the server is silent",
    "ended": "the campaign is over",
    "entropy": "this machine gave no random numbers",
    "lifetime": "one more report would exceed the policy's limit for life, which only a new policy can raise",
    "no_campaign": "there is no campaign",
    "one_shot": "the device makes one report after each start, and has made it",
    "pause": "the household has paused it; undertone-device resume ends the pause",
    "period": "the owner allows no further report in this period",
    "rate": "too little time has passed since the last report",
    "reports": "the stream has made all reports of this window",
    "rest": "the device rests between two reports",
    "spent": "a report for this time counts as sent already",
    "storage": "the ledger cannot be written",
    "turn": "other devices report in this slot",
    "waiting": "the campaign has not begun",
    "window": "the device's own count of time has not reached the stream's next window",
}


def begin_pause(config: DeviceConfig, now: int, at_once: bool = False, seconds: int = 0) -> tuple[int, int]:
    """Pause the device, whether or not it runs; return (from, until). Raises Invalid, OSError.

    The pause is that of `pauses.begin`, joined with an earlier one that is not over (`pauses.extend`).
    """
    storage, slot, rest = _pausing(config)
    pause = pauses.extend(pauses.read(storage, now), pauses.begin(now, slot, rest, at_once, seconds), now)
    pauses.write(storage, pause)
    return pause


def resume(config: DeviceConfig, now: int) -> tuple[int, int]:
    """End the device's pause as early as its rules allow; return (from, until). Raises Invalid, OSError."""
    storage, slot, rest = _pausing(config)
    pause = pauses.end(pauses.read(storage, now), now, slot, rest)
    pauses.write(storage, pause)
    return pause


def _pausing(config: DeviceConfig) -> tuple[FileStorage, int, int]:
    """Return the device's storage, the seconds of a slot and the policy's rest."""
    policy = assembly.read_policy(config)
    slot = policy.slot_seconds
    try:
        campaign = status.parse_status(read_bounded(f"{config.state}/{status.FILE}", status.LARGEST))["campaign"]
        slot = campaign["slot_seconds"] if campaign else slot
    except Invalid:
        pass  # There is no valid status, for example before the first run.
    return FileStorage(config.state), slot, policy.rest_seconds


def agreement(policy: Policy, language: str) -> list[str]:
    """Return what the owner has agreed to with this policy, as lines of text."""
    agreed = consent.consent(policy, read_words(language)["consent"])
    return [f"{title}: {text}" for _, title, text in agreed["rows"]] + [agreed["expert"]]


def explain(state: dict[str, Any]) -> list[str]:
    """Return the status as lines of text, every epsilon with its guarantee."""
    age = clock.unix_time() - state["time"]
    lines = [f"device      {state['device']}, status of {age} s ago, {'online' if state['online'] else 'offline'}"]
    lines += _campaign(state["campaign"])
    lines += _spent(state)
    counts = state["counts"]
    lines.append(
        f"reports     {counts['acked']} acknowledged since the start, {state['outbox']} waiting in the outbox,"
        f" {state['dropped']} dropped from a full outbox; {state['sequence']} made in all"
    )
    signers = state["signers"]
    lines.append(
        f"signers     {signers}"
        if signers
        else "signers     none (insecure): the device accepts anybody's campaign, which may block those of the server"
    )
    refusals = ", ".join(f"{reason} {count}" for reason, count in sorted(state["refusals"].items()))
    lines.append(f"refused     {refusals or 'nothing'}")
    lines += _paused(state)
    failures = counts["sensor_failures"]
    if failures:
        samples = "1 sample" if failures == 1 else f"{failures} samples"
        lines.append(f"sensor      {samples} failed or came after the end of the slot, since the start")
    for number, campaigns in state["history"]:
        names = ", ".join(campaigns)
        lines.append(
            f"history     {_date(number)}: the device was told to accept {names} as well; the agreement and all limits"
            " still hold"
        )
    if state["outside"]:
        lines.append(
            f"question    may the device also report for {', '.join(state['outside'])}? The agreement does not cover"
            " that, so nothing is sent for it. To agree, ask the operator for a new policy"
        )
    if state["trouble"]:
        lines.append(f"last event  {state['trouble']}")
    if state.get("source"):
        default = "a slot without samples reports the campaign's public default, with noise"
        lines.append(f"source      {state['source']}; {default}")
    return lines


def _campaign(campaign: dict[str, Any] | None) -> list[str]:
    if campaign is None:
        return ["campaign    none accepted: nothing is reported"]
    theta = campaign["theta"]
    theta = "none yet (threshold rounds)" if theta is None else f"at most {theta} {campaign['unit']}"
    lines = [
        f"campaign    {campaign['name']}, which measures the {campaign['measure']} of {campaign['sensor']}",
        f"epoch       {campaign['epoch']} ({_date(campaign['epoch'])}), slots of {campaign['slot_seconds']} s,"
        f" fingerprint {campaign['fingerprint']}",
        f"threshold   {theta}, largest reading {campaign['largest']} {campaign['unit']}",
    ]
    for name, (a, b) in sorted(campaign["certificates"].items()):
        cost = f"epsilon = {math.log(a / b):.4f} per reading (event level)"
        lines.append(f"certificate {name}: odds change by at most {a}/{b}, {cost}")
    return lines


def _spent(state: dict[str, Any]) -> list[str]:
    cap = state["cap"]
    cost = f"epsilon = {math.log(cap[0] / cap[1]):.4f} per reading (event level)"
    lines = [f"owner's cap {cap[0]}/{cap[1]}: one report changes odds by at most this factor, {cost}"]
    campaign = state["campaign"]
    if campaign is not None and campaign["stream"] is not None:
        lines += _stream(campaign["stream"])
    else:
        certificates = [cap] if campaign is None else campaign["certificates"].values()
        lines.append(_reading(max(math.log(a / b) for a, b in certificates)))
    lines += _day(state)
    lines += _sums(state)
    streams = state["streams"]
    if streams is not None or state["ever_rho"]:
        rho = state["ever_rho"] / UNIT
        line = f"streams     rho = {rho:.4g} (zCDP) spent so far"
        if streams is not None and streams["lifetime"]:
            line += f", of {streams['lifetime'] / UNIT:.4g} allowed,"
        lines.append(
            f"{line} in addition to the epsilon above; this rho is epsilon = {at_delta(rho):.4g} at"
            f" delta = 2^-{_DELTA_BITS}"
        )
    return lines


def _sums(state: dict[str, Any]) -> list[str]:
    month = f"this month  at most epsilon = {state['month'] / UNIT:.2f} spent in the last thirty days (device's clock)"
    if not state["began"]:
        return [month, "ever        nothing yet"]
    ever = f"ever        epsilon = {state['ever'] / UNIT:.2f} spent since {_date(state['began'])}"
    if state["lifetime"]:
        used = 100 * state["ever"] / state["lifetime"]
        ever += f"; the device falls silent at {state['lifetime'] / UNIT:.2f} ({used:.1f} % used)"
    if losses := state["losses"]:
        if state["time"] - state["began"] < 31 * _DAY:
            month += f", not counting what was lost before {_date(state['began'])}"
        ever += f". The record was lost {'once' if losses == 1 else f'{losses} times'}: "
        ever += (
            "all that was allowed until then counts as spent"
            if state["lifetime"]
            else "what it held is not in this sum"
        )
    return [month, ever + ". What the reports of many days tell about a habit is limited only by all that is spent"]


def _reading(epsilon: float) -> str:
    return (
        f"one reading epsilon = {epsilon:.4f}: for whoever sees its report alone, or knows all other readings, the odds"
        f" between two values of the reading change by a factor of at most {_factor(epsilon)}"
    )


def _day(state: dict[str, Any]) -> list[str]:
    """Describe the most that any 24 hours can cost by the policy, and what was really drawn."""
    most = state["most_a_day"]
    epsilon, life = most * math.log(state["cap"][0] / state["cap"][1]), state["lifetime"] / UNIT
    limit = ""
    if 0 < life < epsilon:
        epsilon, limit = life, ", the limit for life"
    text = (
        f"any 24 h    at most {most} report{'s' if most > 1 else ''}: epsilon = {epsilon:.2f}{limit}, whatever"
        " campaigns the policy allows. All that the device ever sends changes the odds of what happened in these 24"
        f" hours by a factor of at most {_factor(epsilon)}, for whoever knows everything else"
    )
    if state["rest_by"] == "clock":
        text += " (as long as the device's clock is right)"
    drawn = f"drawn       epsilon = {state['recent'] / UNIT:.2f} for slots that began yesterday or today (UTC)"
    if state["losses"] and state["time"] - state["began"] < 2 * _DAY:
        drawn += f", not counting what was lost before {_date(state['began'])}"
    lines = [text, drawn]
    streams = state["streams"]
    if streams is not None:
        rho = rho_a_day(streams)
        most_rho = "no limit: the policy limits only each single report of a stream"
        if rho is not None:
            most_rho = f"at most rho = {rho:.4g}, which is epsilon = {at_delta(rho):.4g} at delta = 2^-{_DELTA_BITS}"
        lines.insert(1, f"            streams, on top of this, in any 24 h: {most_rho}")
    return lines


def rho_a_day(streams: dict[str, Any]) -> float | None:
    """Return the largest rho (zCDP) that streams may be charged for 24 hours, or None if the policy limits only single
    reports.

    Each calendar period that the 24 hours touch may be charged in full; the lifetime's limit holds for them, too.
    """
    limits = [streams["lifetime"]] if streams["lifetime"] else []
    if streams["rho"] is not None:
        limits.append((-(-_DAY // streams["period_seconds"]) + 1) * streams["rho"])
    return min(limits) / UNIT if limits else None


def epsilon_a_day(state: dict[str, Any]) -> float | None:
    """Return the most epsilon of any 24 hours, for any campaigns that the policy allows; streams at delta 2^-20.

    Return None if the policy limits only single reports of a stream.
    """
    p, q = state["cap"]
    epsilon = float(state["most_a_day"] * math.log(p / q))
    if state["lifetime"]:
        epsilon = min(epsilon, state["lifetime"] / UNIT)
    streams = state["streams"]
    if streams is None:
        return epsilon
    rho = rho_a_day(streams)
    return None if rho is None else epsilon + at_delta(rho)


def epsilon_spent(state: dict[str, Any]) -> float:
    """Return the epsilon of all that the device has ever spent; streams at delta 2^-20."""
    return float(state["ever"] / UNIT + at_delta(state["ever_rho"] / UNIT))


def epsilon_for_life(state: dict[str, Any]) -> float | None:
    """Return the most epsilon that the device may ever spend, streams at delta 2^-20; None without such a limit."""
    p, q = state["cap"]
    streams = state["streams"]
    if (not state["lifetime"] and p > q) or (streams is not None and not streams["lifetime"]):
        return None
    return float(state["lifetime"] / UNIT + (0 if streams is None else at_delta(streams["lifetime"] / UNIT)))


def share_spent(state: dict[str, Any]) -> float | None:
    """Return which share of its limits for life the device has spent, of epsilon or of rho, whichever is more.

    Return None if there is no such limit.
    """
    streams = state["streams"]
    shares = [state["ever"] / state["lifetime"]] if state["lifetime"] else []
    if streams is not None and streams["lifetime"]:
        shares.append(state["ever_rho"] / streams["lifetime"])
    return max(shares) if shares else None


def _stream(stream: dict[str, Any]) -> list[str]:
    rho = stream["rho"][0] / stream["rho"][1]
    span = f"each window of {stream['renewal']} slots" if stream["renewal"] else "the whole campaign"
    return [
        f"meaning     a {stream['law']} stream: rho = {rho:.4g} (zCDP) for all readings of {span} together;"
        f" that is epsilon = {at_delta(rho):.4g} at delta = 2^-{_DELTA_BITS} for the stream (user level)"
    ]


def _paused(state: dict[str, Any]) -> list[str]:
    lines = []
    if state["paused"]:
        lines.append(f"paused      {state['paused']}: {WHY.get(state['paused'], 'see the manual')}")
    return lines + pause_lines(state["pause"], state["time"])


def pause_lines(pause: list[int], now: int) -> list[str]:
    """Describe the household's pause in a sentence. If the pause is over, return no sentence."""
    start, until = pause
    if until <= now:
        return []
    end = "until undertone-device resume ends it" if until == ENDLESS else f"to {_date(until)}"
    return [f"pause       from {_date(start)} {end}: nothing is reported, and others can see the silence"]


def at_delta(rho: float) -> float:
    """Return epsilon of ``rho`` (zCDP) at delta 2^-20 (Bun, Steinke, TCC 2016)."""
    return rho + 2 * math.sqrt(rho * _DELTA_BITS * math.log(2))


def _factor(epsilon: float) -> str:
    return f"{math.exp(epsilon):.3g}" if epsilon < 200 else f"e^{epsilon:.0f}"


def _date(seconds: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(seconds))
