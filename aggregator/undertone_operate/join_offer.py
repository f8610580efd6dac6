"""The offer that a person reads before joining: who asks, what is measured, how often, and the guarantee.

Its numbers come from the policy that the person's device would get, because the device enforces that policy whatever
the server says.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import ROUND_CEILING, Context, Decimal
from fractions import Fraction
from typing import Any

from undertone_aggregator.campaign.preview import epochs_of
from undertone_aggregator.design.stream.calibration import zcdp_epsilon
from undertone_aggregator.settings.config import Config
from undertone_aggregator.store.store import NoStore, open_store
from undertone_device.core.spent import most_reports
from undertone_device.core.units import UNIT, epsilon_units
from undertone_operate.join_words import DEFAULT, LANGUAGES, OfferWords, percent
from undertone_operate.provision import DAY
from undertone_shared.campaign import Campaign
from undertone_shared.errors import Invalid
from undertone_shared.policy import Policy, parse_policy
from undertone_shared.stream_policy import StreamPolicy

_DIGITS = 4
# Unit of the readings -> quantity, in the words of Home Assistant's device classes, so that a home can suggest a meter.
QUANTITIES = {
    "energy": ("Wh", "kWh", "MWh", "J", "kJ", "MJ", "GJ"),
    "power": ("mW", "W", "kW", "MW"),
    "temperature": ("°C", "°F", "K"),
    "voltage": ("mV", "V"),
    "current": ("mA", "A"),
    "frequency": ("Hz", "kHz", "MHz"),
    "sound_pressure": ("dB", "dBA"),
    "volume": ("m³", "L", "l", "mL"),
    "duration": ("s", "min", "h"),
}


@dataclass(frozen=True)
class Bound:
    """A bound on what reports reveal: ``epsilon``, and ``delta`` for streams. ``reports``: the most of them.

    ``epsilon`` is None if nothing bounds it.
    """

    epsilon: Fraction | None
    reports: int | None
    delta: Fraction | None = None


def offer(config: Config, policy: str, operator: str, now: int, language: str = DEFAULT) -> dict[str, Any]:
    """Return the offer of a campaign for a device with this policy (JSON), in a language of `join_words`.

    Raises Invalid for a campaign that cannot begin, OSError.
    """
    campaign, limits = _campaign(config, now), parse_policy(policy.encode())
    plan = config.campaign
    turn = plan.stride * plan.slot_seconds
    words = LANGUAGES[language]
    text = words.measures[plan.measure].format(sensor=plan.sensor, unit=plan.unit, span=words.span(plan.slot_seconds))
    return {
        "operator": operator,
        "campaign": plan.name,
        "measures": {
            "text": text,
            "sensor": plan.sensor,
            "measure": plan.measure,
            "quantity": next((name for name, units in QUANTITIES.items() if plan.unit in units), None),
            "unit": plan.unit,
            "slot_seconds": plan.slot_seconds,
            "low": str(plan.offset),
            "high": str(plan.offset + plan.bound),
        },
        "reports": {"per_day": -(-DAY // turn), "every_seconds": turn, "until": iso(campaign.end)},
        "guarantee": _GUARANTEES[config.kind](config, limits, words),
    }


def iso(seconds: int) -> str:
    """Return a Unix second as people and programs read it: 2027-01-01T00:00:00Z."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def campaign_end(config: Config, now: int) -> int:
    """Return the Unix second at which a campaign ends, or would end if it began now. Raises Invalid, OSError."""
    return _campaign(config, now).end


def shown_up(value: Fraction) -> str:
    """Return a bound as a number of four significant digits, rounded up so that it stays a bound."""
    up = Context(prec=_DIGITS, rounding=ROUND_CEILING)
    return f"{up.divide(Decimal(value.numerator), Decimal(value.denominator)).normalize():f}"


def of_readings(policy: Policy) -> tuple[Bound, Bound, Bound]:
    """Return the bounds for one reading, for any 24 hours and for life, for reports of single readings.

    They are sums of the policy's cap, exact in units of 2^-20 and rounded up to a unit.
    """
    units = epsilon_units(*policy.cap)
    most = most_reports(policy, DAY, "counter" in policy.measures)
    reading, day = Bound(Fraction(units, UNIT), 1), Bound(Fraction(most * units, UNIT), most)
    if not policy.lifetime:
        return reading, day, Bound(None, None)
    life = Bound(Fraction(policy.lifetime, UNIT), policy.lifetime // units)
    return reading, min(day, life, key=lambda bound: bound.epsilon or 0), life


def of_stream(policy: StreamPolicy, delta: Fraction) -> tuple[Bound, Bound]:
    """Return the bounds for any 24 hours and for life, for streams: (ε, ``delta``) of the charged ρ (zCDP).

    24 hours touch one period more than fit into them.
    """
    day = (-(-DAY // policy.period_seconds) + 1) * policy.rho
    if policy.lifetime:
        day = min(day, policy.lifetime)
    life = Bound(_of_rho(policy.lifetime, delta) if policy.lifetime else None, None, delta)
    return Bound(_of_rho(day, delta), None, delta), life


def _of_rho(units: int, delta: Fraction) -> Fraction:
    return Fraction(zcdp_epsilon(units / UNIT, float(delta)))


def _scalar(config: Config, policy: Policy, words: OfferWords) -> dict[str, Any]:
    reading, day, life = of_readings(policy)
    assert reading.epsilon is not None
    assert day.epsilon is not None
    of_one = words.reading.format(sure=percent(float(reading.epsilon)))
    if day.reports == 1:
        of_day = words.day_window.format(sure=percent(float(day.epsilon)))
    else:
        of_day = words.day.format(reports=words.count(day.reports or 0), outcome=words.outcome(float(day.epsilon)))
    of_life = words.endless
    if life.epsilon is not None:
        of_life = words.life.format(reports=words.count(life.reports or 0), outcome=words.outcome(float(life.epsilon)))
    return _shown(reading, day, life, (of_one, of_day, of_life))


def _stream(config: Config, policy: Policy, words: OfferWords) -> dict[str, Any]:
    stream, delta = policy.stream, config.budget.delta
    if not stream or delta is None:
        raise Invalid(f"the devices' policy allows no stream, which campaign {config.campaign.name} needs")
    day, life = of_stream(stream, delta)
    chance = words.chance.format(odds=words.count(round(1 / delta)))
    of_day, of_life = (
        words.endless
        if bound.epsilon is None
        else sentence.format(outcome=words.outcome(float(bound.epsilon)), chance=chance)
        for sentence, bound in ((words.stream_day, day), (words.stream_life, life))
    )
    return _shown(None, day, life, ("", of_day, of_life))


# Kind of the campaign's rules -> the guarantee of a device's policy.
_GUARANTEES: dict[str, Callable[[Config, Policy, OfferWords], dict[str, Any]]] = {"scalar": _scalar, "stream": _stream}


def _shown(reading: Bound | None, day: Bound, life: Bound, sentences: tuple[str, str, str]) -> dict[str, Any]:
    return {
        "reading_epsilon": None if reading is None or reading.epsilon is None else shown_up(reading.epsilon),
        "day_epsilon": None if day.epsilon is None else shown_up(day.epsilon),
        "life_epsilon": None if life.epsilon is None else shown_up(life.epsilon),
        "delta": None if day.delta is None else f"{float(day.delta):g}",
        "life_reports": life.reports,
        **dict(zip(("sentence_reading", "sentence_day", "sentence_life"), sentences, strict=True)),
    }


def _campaign(config: Config, now: int) -> Campaign:
    """Return the newest epoch of the campaign, or the first one that would be issued now."""
    try:
        with open_store(config.store_url, campaign=config.campaign.name, read_only=True) as store:
            epochs = store.epochs()
    except NoStore:
        epochs = []
    return epochs[-1].campaign if epochs else epochs_of(config).first(now).campaign
