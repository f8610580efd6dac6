"""The result of `undertone certify` for a mechanism: integers, certificate, exact moments, guarantee."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from math import log
from typing import Any

from undertone_aggregator.base.notebook import Summarised
from undertone_aggregator.design import audit, window
from undertone_aggregator.design.audit import AuditedLevel
from undertone_aggregator.design.budget import Budget, shown
from undertone_aggregator.design.mechanisms import Mechanism, traits_of
from undertone_aggregator.design.named import Formula, certified_as
from undertone_aggregator.design.stream.certificate import StreamCertificate, certify_stream
from undertone_shared.campaign import MAGIC, Campaign, body_of, digest_of, header, signature_of
from undertone_shared.checks import check_integer, check_object
from undertone_shared.ed25519 import verify
from undertone_shared.errors import Invalid
from undertone_shared.notation import parse_mechanism

REPORTS_PER_DAY = 48
# Default δ in the guarantee of a stream.
DELTA = 1e-5
# Largest number of entries of a list that is shown in full; of a longer list only the length is shown.
_SHORT = 5
_MOST_LEVELS = 9
# The usual number of levels and of bins, for a mechanism that is certified by its name.
_USUAL = {"levels": window.LEVELS, "bins": 128}


@dataclass(frozen=True, repr=False)
class Certificate(Summarised):
    """A mechanism that passed every check.

    ``ratio``: the certificate. ``levels``: the audited levels; None if the mechanism has no unbiased decode.
    ``formula``: the variance as a function of the reading, with which the exact variance is compared; None without one.
    ``worst_only``: only the largest values of the two are compared. ``theta``: the range of readings is [0, theta].
    """

    name: str
    epsilon: Fraction
    ratio: Fraction
    mechanism: Mechanism
    levels: list[AuditedLevel] | None
    formula: Formula | None
    worst_only: bool
    theta: int

    def facts(self) -> dict[str, str]:
        """Return name, ε, certificate, number of symbols and, with an unbiased decode, the largest variance."""
        worst = self.variance_worst
        return {
            "mechanism": self.name,
            "epsilon": shown(self.epsilon),
            "certificate": f"{self.ratio.numerator}/{self.ratio.denominator} = e^{self.epsilon_achieved:.6g}",
            "symbols": str(self.cells),
        } | ({} if worst is None else {"largest variance": f"{worst:.4g}"})

    @property
    def epsilon_achieved(self) -> float:
        """ln of the certificate: the ε that one reading costs."""
        return log(self.ratio)

    @property
    def cells(self) -> int:
        """The number of symbols that a report can have."""
        return self.mechanism.symbols - self.mechanism.first

    @property
    def variance_worst(self) -> float | None:
        """The largest exact variance over the levels, for readings in [-1, 1]."""
        return None if self.levels is None else float(max(level.variance for level in self.levels))

    @property
    def variance_ratio_worst(self) -> float | None:
        """The largest ratio, over the levels, of the exact variance to ``formula``; None without levels or formula.

        With ``worst_only``, the ratio of the two largest variances.
        """
        if self.levels is None or self.formula is None:
            return None
        if self.worst_only:
            return float(max(level.variance for level in self.levels)) / self.formula(1)
        return max(float(level.variance) / self.formula(float(level.reading)) for level in self.levels)

    def integers(self) -> dict[str, object]:
        """The input of `certify_table`: the integers that a campaign contains and, for a table, its decode values,
        which a campaign does not contain.
        """
        described: dict[str, object] = self.mechanism.describe()
        decoded = traits_of(self.mechanism).decoded
        if decoded is None:
            return described
        numerators, denominator = decoded
        return {"mechanism": described, "theta": self.theta, "decoded": list(numerators), "denominator": denominator}

    @property
    def baseline(self) -> str:
        """The name of the mechanism whose variance ``formula`` gives, see `Traits`."""
        return traits_of(self.mechanism).baseline

    def summary(self) -> dict[str, object]:
        """Return the integers for people: a long list is replaced by its size."""
        described: dict[str, object] = self.mechanism.describe()
        return {
            key: f"{len(value)} {'rows' if key == 'rows' else 'integers'}"
            if isinstance(value, list) and len(value) > _SHORT
            else value
            for key, value in described.items()
        }

    def as_json(self) -> dict[str, object]:
        """Return the documented JSON object."""
        return {
            "mechanism": self.name,
            "epsilon_cap": float(self.epsilon),
            "certificate": f"{self.ratio.numerator}/{self.ratio.denominator}",
            "epsilon_achieved": self.epsilon_achieved,
            "guarantee": "event level: one reading",
            "epsilon_per_day": REPORTS_PER_DAY * self.epsilon_achieved,
            "variance_worst": self.variance_worst,
            "variance_ratio_worst": self.variance_ratio_worst,
            "cells": self.cells,
            "levels": self.mechanism.levels,
            "total": self.mechanism.row_total(),
            "integers": self.integers(),
        }

    def lines(self) -> list[str]:
        """Return the certificate as lines of text, with a small table."""
        ratio = self.ratio
        achieved = self.epsilon_achieved
        integers = ", ".join(f"{name} {value}" for name, value in self.summary().items() if name != "kind")
        mechanism = self.mechanism
        out = [
            f"mechanism    {self.name}: {integers}",
            f"size         {self.cells:,} cells, levels 0 to {mechanism.levels}, "
            f"each row of weights sums to {mechanism.row_total():,}",
            f"certificate  {ratio.numerator}/{ratio.denominator} <= e^{shown(self.epsilon)}; the mechanism has "
            f"ε = ln({ratio.numerator}/{ratio.denominator}) = {achieved:.9f}",
            f"guarantee    event level: one reading costs ε = {achieved:.6g}; {REPORTS_PER_DAY} reports a day cost "
            f"ε = {REPORTS_PER_DAY * achieved:.6g} for the household (user level, per day)",
        ]
        if self.levels is None:
            why = (
                "the table comes without its decoded values"
                if mechanism.edges is None
                else "a report is no unbiased value; the reports together show the distribution"
            )
            return [
                *out,
                f"moments      none, because {why}",
                "",
            ]
        baseline = self.baseline
        step = max(1, len(self.levels) // (_MOST_LEVELS - 1))
        out.append("moments      exact, by summation over the weights, readings in [-1, 1]; the closed forms agree")
        out.append(f"             {'level':>5} {'mean':>12} {'variance':>12}" + f" {baseline:>12} {'ratio':>9}")
        for level in self.levels[::step]:
            row = f"             {level.level:>5} {float(level.mean):>12.6f} {float(level.variance):>12.6f}"
            if self.formula is not None:
                continuous = self.formula(float(level.reading))
                row += f" {continuous:>12.6f} {float(level.variance) / continuous:>9.6f}"
            out.append(row)
        worst = f"             worst variance {self.variance_worst:.6f}"
        if self.variance_ratio_worst is not None:
            worst += f", worst ratio to the continuous mechanism {self.variance_ratio_worst:.6f}"
        return [*out, worst, ""]


def certify_named(name: str, epsilon: str, levels: int | None = None, bins: int | None = None) -> Certificate:
    """Certify the mechanism of this name, one of `named.certified_names`.

    ``levels`` is for the mechanisms with levels, and ``bins`` for the Square Wave; None means the usual number. The
    name "optimal" stands for the table whose largest variance is least; this variance is compared with the Hybrid's.
    For a table that was designed for a population, use `certify_campaign` or `certify_table`.

    Raises Invalid for bad input, such as ``bins`` for a mechanism without bins. Raises `audit.NotCertified` if a check
    fails.
    """
    certified = certified_as(name)
    sizes = {"levels": levels, "bins": bins}
    for option, size in sizes.items():
        if size is not None and option != certified.sized:
            raise Invalid(f"{option} is {size}, but the mechanism {name} has no number of {option}")
    size = None if certified.sized is None else sizes[certified.sized]
    usual = 0 if certified.sized is None else _USUAL[certified.sized]
    e, _ = Budget.parse(epsilon).approximate
    mechanism = certified.make(epsilon, usual if size is None else size)
    formula = None if certified.formula is None else certified.formula(e)
    return certify_mechanism(name, mechanism, epsilon, certified.theta, formula, certified.worst_only)


def certify_table(data: bytes, epsilon: str) -> Certificate:
    """Certify a mechanism from a JSON file in the form that a campaign uses, against e^epsilon.

    A table may come with its decode, {"mechanism": {...}, "theta": t, "decoded": [...], "denominator": d}: then its
    moments are checked as well. The output of ``certify --json`` for a mechanism or a table is accepted, too. Raises
    Invalid, `audit.NotCertified`.
    """
    value: Any = _json(data, "the file")
    if "integers" in value:
        value = value["integers"]
        if not isinstance(value, dict):
            raise Invalid(f"integers is {value!r}, expected an object")
    if "mechanism" not in value:
        return certify_mechanism(str(value.get("kind")), parse_mechanism("the file", value), epsilon, 2, None)
    fields = check_object("the file", value, ("mechanism", "theta", "decoded", "denominator"))
    table = parse_mechanism("mechanism", fields["mechanism"])
    decoding = traits_of(table).decoding
    if decoding is None:
        raise Invalid("mechanism is not a table: only a table has a decode of its own")
    theta = check_integer("theta", fields["theta"], 1, (1 << 30) - 1)
    if not isinstance(fields["decoded"], list):
        raise Invalid(f"decoded is {fields['decoded']!r}, expected a list of integers")
    ys = tuple(check_integer(f"decoded[{j}]", y, -(1 << 62), 1 << 62) for j, y in enumerate(fields["decoded"]))
    denominator = check_integer("denominator", fields["denominator"], 1, 1 << 62)
    return certify_mechanism("table", decoding((ys, denominator)), epsilon, theta, None)


def certify_campaign(
    data: bytes, epsilon: str, delta: float = DELTA, signer: str | None = None
) -> list[Certificate | StreamCertificate]:
    """Certify a campaign, given its body or its retained message, against (epsilon, delta).

    A stream campaign is checked as one stream. Otherwise each mechanism is checked against e^epsilon: the cohort's and,
    if there is one, the report mechanism. The campaign's form and schedule are checked as a device checks them.
    ``signer``: a public key in hex; with it the message's signature is checked, too. Raises Invalid,
    `audit.NotCertified`.
    """
    body = _body(data)
    campaign = Campaign(body)
    if signer is not None:
        _check_signature(data, body, signer)
    certify = _BY_RULE.get(campaign.rule.kind)
    if certify is None:
        raise Invalid(f"the campaign's rule has kind {campaign.rule.kind!r}, expected one of {', '.join(_BY_RULE)}")
    return certify(campaign.rule, epsilon, delta)


def described(data: bytes) -> str:
    """Return the name of a campaign and its fingerprint, which `undertone-device status` shows, too. Raises Invalid."""
    campaign = Campaign(_body(data))
    return f"{campaign.name}, fingerprint {campaign.fingerprint.hex()}"


def _body(data: bytes) -> bytes:
    """Return the body of a campaign, given the body or its retained message."""
    if not data.startswith(MAGIC):
        return data
    header(data)
    return bytes(body_of(data))


def _check_signature(message: bytes, body: bytes, signer: str) -> None:
    if message is body:
        raise Invalid("the file holds a campaign's body, expected the retained message: a body has no signature")
    try:
        key = bytes.fromhex(signer)
    except ValueError:
        key = b""
    if len(key) != 32:
        raise Invalid(f"signer is {signer!r}, expected a public key of 32 bytes in hexadecimal")
    if not verify(key, digest_of(body), signature_of(message)):
        raise audit.NotCertified(f"the campaign is not signed by {signer}")


def _scalar(rule: Any, epsilon: str, delta: float) -> list[Certificate | StreamCertificate]:
    width = 2 if rule.report is None else rule.report.width
    return [
        certify_mechanism(name, mechanism, epsilon, 2 if mechanism.edges else width, None)
        for name, mechanism in rule.mechanisms
    ]


def _stream(rule: Any, epsilon: str, delta: float) -> list[Certificate | StreamCertificate]:
    return [certify_stream(rule, epsilon, delta)]


_BY_RULE: dict[str, Callable[[Any, str, float], list[Certificate | StreamCertificate]]] = {
    "scalar": _scalar,
    "stream": _stream,
}


def certify_mechanism(
    name: str, mechanism: Mechanism, epsilon: str, theta: int, formula: Formula | None, worst_only: bool = False
) -> Certificate:
    """Certify any mechanism that `design.mechanisms` knows. Raises Invalid, `audit.NotCertified`."""
    budget = Budget.parse(epsilon)
    ratio = audit.checked_ratio(mechanism, budget.cap)
    audit.check_rows(mechanism)
    decodes = mechanism.edges is None and traits_of(mechanism).decodes
    levels = audit.exact_levels(mechanism, theta) if decodes else None
    return Certificate(name, budget.epsilon, ratio, mechanism, levels, formula, worst_only, theta)


def _json(data: bytes, name: str) -> dict[str, object]:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        raise Invalid(f"{name} is not JSON") from None
    if not isinstance(value, dict):
        raise Invalid(f"{name} is not a JSON object")
    return value
