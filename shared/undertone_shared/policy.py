"""The device owner's policy, fixed when its files are made; a campaign that it does not allow is refused with a reason.

Privacy depends on this policy alone: the server, the broker and the clock are not trusted.

Reasons of refusals by any part of the device:

============== ========================================================================
invalid        not a campaign
topic          heard on another campaign's topic
sensor         another sensor than this device's
measure        a slot value that the owner does not allow
unit           readings in another unit than the owner allows
slot_seconds   slots shorter than allowed
epsilon        a mechanism's certificate exceeds the cap
theta          theta outside the allowed range
stream         a stream, or one of a kind or dimension that the owner does not allow
rho            a stream's privacy budget exceeds what is left of the cap
rest           a stream, where the owner wants rest between reports
duration       lasts longer than allowed
until          ends later than allowed
sensor_busy    another campaign holds the sensor
epoch_rollback not later than the accepted epoch
epoch_too_soon less than the minimum time after the accepted epoch
epoch_pending  an accepted epoch has not begun yet
epoch_ahead    starts further ahead than allowed
signature      none of the owner's signers signed it
ended          its last slot is over
clock          issued_at and the device's clock differ by more than a day
storage        the device could not store it
============== ========================================================================
"""

import json

from undertone_shared.campaign import LONGEST_UNIT, MEASURES, Campaign
from undertone_shared.checks import check_cap, check_integer, check_object, check_text
from undertone_shared.errors import Invalid, Refused
from undertone_shared.topics import check_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from undertone_shared.stream_policy import StreamPolicy

VERSION = 1
LARGEST = 4096
_MOST_SIGNERS = 4
_KEY_BYTES = 32
_AGREED_DIGITS = 32
_YEAR = 366 * 86400
# Largest rest in seconds: the device's tick counter wraps around after 12.4 days.
_LARGEST_REST_SECONDS = 6 * 86400

_NEEDED = ("version", "sensor", "measures", "cap", "slot_seconds", "theta", "duration_seconds")


def default_fields() -> "dict[str, Any]":
    """Return the fields of a policy with their defaults; those in ``_NEEDED`` have none. Only parsing needs them."""
    return {
        "version": VERSION,
        # The one sensor whose readings may be reported.
        "sensor": None,
        # The slot values that may be reported, a list of names of `undertone_shared.campaign.MEASURES`.
        "measures": None,
        # The readings' unit, "" for any.
        "unit": "",
        # (p, q): every mechanism's certificate is at most p/q, so one reading costs at most epsilon = ln(p/q).
        "cap": None,
        # The shortest slot, in seconds.
        "slot_seconds": None,
        # (least, most) theta.
        "theta": None,
        # The longest campaign, in seconds.
        "duration_seconds": None,
        # The Unix second by which every campaign must end, 0 for no end.
        "until": 0,
        # At most so many reports in any period of so many seconds, which limits the total of a day.
        "period_seconds": 86400,
        "reports_per_period": 48,
        # Least time in seconds from one reported interval to the next, at most six days.
        "rest_seconds": 0,
        # The clock of rest and periods: the "ticks" of a counter that knows how long the board slept, or the "clock",
        # which the network can set; None: "clock" with one_shot, else "ticks".
        "rest_by": None,
        # The total cost of all reports ever, in multiples of 2^-20 of epsilon, 0 for no limit; streams have their own.
        "lifetime": 0,
        # An epoch begins at least this many seconds after the one before it; 0 means one cycle of the campaign.
        "epoch_seconds": 0,
        # Number of boots in a day that may draw.
        "boots_per_day": 4,
        # Least time in seconds between writes to flash; shorter slots are reserved in blocks.
        "write_seconds": 60,
        # True if the device draws one report each time it wakes. Boards whose clock stops in sleep need that.
        "one_shot": False,
        # True: MQTT without TLS and without signers, for a demonstration on loopback.
        "insecure": False,
        # Public keys (Ed25519, 32 bytes in hexadecimal), at most 4, one of which must have signed a campaign.
        "signers": (),
        # How far in seconds ahead of the clock an epoch may start, so that an attacker cannot use up epoch numbers.
        "lead_seconds": 86400,
        # The limits of streams, see `undertone_shared.stream_policy`; False: no stream is allowed.
        "stream": False,
        # True: a signer may send the device to another address, and to another campaign that this policy allows.
        "handover": False,
        # The fingerprint of what the household agreed to, 32 hexadecimal digits, "" for none: a hand-over may name
        # another campaign only for the same one.
        "agreed": "",
    }


class Policy:
    """Limits that the owner of one sensor sets; `default_fields` explains each. Raises Invalid for wrong ones."""

    stream: "StreamPolicy | None"

    def __init__(self, fields: "dict[str, Any]"):
        merged = default_fields()
        merged.update(check_object("the policy", fields, tuple([n for n in merged if n in fields or n in _NEEDED])))
        check_integer("version", merged["version"], VERSION, VERSION)
        self.sensor = check_name("sensor", merged["sensor"])
        measures = merged["measures"]
        if not isinstance(measures, list) or not measures or [m for m in measures if m not in MEASURES]:
            raise Invalid("measures is %r, expected a list of %s" % (measures, ", ".join(MEASURES)))
        self.measures = tuple(measures)
        self.unit = check_text("unit", merged["unit"], LONGEST_UNIT)
        check_cap(merged["cap"])
        self.cap = (merged["cap"][0], merged["cap"][1])
        self.slot_seconds = check_integer("slot_seconds", merged["slot_seconds"], 1, 7 * 86400)
        theta = merged["theta"]
        if not isinstance(theta, list) or len(theta) != 2:
            raise Invalid("theta is %r, expected a list of the least and the most" % (theta,))
        least = check_integer("theta[0]", theta[0], 1, (1 << 30) - 1)
        self.theta = (least, check_integer("theta[1]", theta[1], least, (1 << 30) - 1))
        self.duration_seconds = check_integer("duration_seconds", merged["duration_seconds"], 1, 100 * _YEAR)
        self.until = check_integer("until", merged["until"], 0, 0xFFFFFFFF)
        self.period_seconds = check_integer("period_seconds", merged["period_seconds"], 1, _YEAR)
        self.reports_per_period = check_integer("reports_per_period", merged["reports_per_period"], 1, 1 << 24)
        self.rest_seconds = check_integer("rest_seconds", merged["rest_seconds"], 0, _LARGEST_REST_SECONDS)
        self.lifetime = check_integer("lifetime", merged["lifetime"], 0, 1 << 62)
        self.epoch_seconds = check_integer("epoch_seconds", merged["epoch_seconds"], 0, _YEAR)
        self.boots_per_day = check_integer("boots_per_day", merged["boots_per_day"], 1, 1000)
        self.write_seconds = check_integer("write_seconds", merged["write_seconds"], 1, 86400)
        for name in ("one_shot", "insecure", "handover"):
            if not isinstance(merged[name], bool):
                raise Invalid("%s is %r, expected true or false" % (name, merged[name]))
        self.one_shot: bool = merged["one_shot"]
        self.insecure: bool = merged["insecure"]
        self.signers = _signers(merged["signers"], self.insecure)
        self.handover: bool = merged["handover"]
        if self.handover and not self.signers:
            raise Invalid("handover is true, expected signers")
        self.agreed = check_text("agreed", merged["agreed"], _AGREED_DIGITS)
        if self.agreed and (len(self.agreed) != _AGREED_DIGITS or self.agreed.strip("0123456789abcdef")):
            raise Invalid("agreed is %r, expected %d hexadecimal digits" % (self.agreed, _AGREED_DIGITS))
        self.lead_seconds = check_integer("lead_seconds", merged["lead_seconds"], 1, _YEAR)
        self.rest_by = merged["rest_by"] or ("clock" if self.one_shot else "ticks")
        if self.rest_by not in ("ticks", "clock"):
            raise Invalid("rest_by is %r, expected ticks or clock" % (self.rest_by,))
        if self.one_shot and self.rest_by == "ticks":
            raise Invalid("rest_by is 'ticks', expected 'clock' with one_shot: no counter survives the sleep")
        self.stream = None
        if merged["stream"] is not False:
            # The import is inside the method, so that a board without streams never loads the code of streams.
            from undertone_shared.stream_policy import StreamPolicy

            self.stream = StreamPolicy(merged["stream"])

    def check_campaign(self, campaign: Campaign) -> None:
        """Check a campaign by itself. Raises Refused if it is more than the owner allows."""
        if campaign.sensor != self.sensor:
            raise Refused("sensor", "sensor is %s, this device serves %s" % (campaign.sensor, self.sensor))
        if campaign.measure not in self.measures:
            raise Refused("measure", "measure is %s, allowed are %s" % (campaign.measure, ", ".join(self.measures)))
        if self.unit and campaign.unit != self.unit:
            raise Refused("unit", "unit is %s, allowed is %s" % (campaign.unit, self.unit))
        if campaign.slot_seconds < self.slot_seconds:
            raise Refused(
                "slot_seconds", "slot_seconds is %d, allowed from %d" % (campaign.slot_seconds, self.slot_seconds)
            )
        duration = campaign.end - campaign.epoch
        if duration > self.duration_seconds:
            raise Refused("duration", "it lasts %d seconds, allowed are %d" % (duration, self.duration_seconds))
        if self.until and campaign.end > self.until:
            raise Refused("until", "it ends at %d, allowed is until %d" % (campaign.end, self.until))
        rule = campaign.rule
        limits: Any = self.stream if rule.kind == "stream" else None
        if rule.kind != "scalar" and limits is None:
            raise Refused(rule.kind, "it is a %s, and the policy allows none" % rule.kind)
        for _, _, theta in rule.ranges:
            if not self.theta[0] <= theta <= self.theta[1]:
                raise Refused("theta", "theta is %d, allowed %d to %d" % (theta, self.theta[0], self.theta[1]))
        for name, mechanism in rule.mechanisms:
            if not mechanism.permits(self.cap):
                certificate = mechanism.certificate()
                raise Refused(
                    "epsilon",
                    "%s.mechanism has certificate %d/%d, allowed is %d/%d" % ((name,) + certificate + self.cap),
                )
        if limits is not None:
            if self.rest_seconds:
                raise Refused("rest", "it is a %s, and the policy wants %d s of rest" % (rule.kind, self.rest_seconds))
            limits.check(campaign, rule)

    def check_signature(self, digest: bytes, signature: bytes, alive: "Callable[[], object] | None" = None) -> None:
        """Check that one of the signers signed the digest of a campaign. Raises Refused; ``alive`` feeds a watchdog."""
        if not self.signers:
            return
        # The import is inside the method, so that a board loads Ed25519's code only when a new campaign arrives.
        from undertone_shared import garbage
        from undertone_shared.ed25519 import verify

        # Verification makes a megabyte of garbage.
        before = garbage.pause()
        try:
            for key in self.signers:
                if verify(key, digest, signature, alive):
                    return
        finally:
            garbage.collect()
            garbage.resume(before)
        raise Refused("signature", "none of the policy's %d signers signed it" % len(self.signers))

    def check_succession(
        self,
        campaign: Campaign,
        accepted: "Campaign | None",
        last_epoch: int,
        now: int,
        successors: "tuple[str, ...]" = (),
    ) -> None:
        """Check that ``campaign`` may follow the newest ``accepted`` one at Unix second ``now``. Raises Refused.

        ``last_epoch`` is the newest epoch ever accepted (0 for none), even if its campaign was lost. ``successors``:
        names of campaigns that may begin before the accepted one ends, because a hand-over named them.
        """
        other = accepted is not None and accepted.name != campaign.name and campaign.name not in successors
        if other and accepted is not None and now < accepted.end:
            raise Refused("sensor_busy", "campaign %s holds the sensor until its end" % accepted.name)
        if campaign.end <= now:
            raise Refused("ended", "its last slot ended at %d, now is %d" % (campaign.end, now))
        if campaign.epoch > now + self.lead_seconds:
            raise Refused(
                "epoch_ahead", "epoch is %d, more than %d seconds after %d" % (campaign.epoch, self.lead_seconds, now)
            )
        if last_epoch:
            if campaign.epoch <= last_epoch:
                raise Refused("epoch_rollback", "epoch is %d, expected after %d" % (campaign.epoch, last_epoch))
            least = self.epoch_seconds or campaign.cycle * campaign.slot_seconds
            if campaign.epoch < last_epoch + least:
                raise Refused(
                    "epoch_too_soon", "epoch is %d, allowed from %d + %d" % (campaign.epoch, last_epoch, least)
                )


def _signers(keys: "Any", insecure: bool) -> "tuple[bytes, ...]":
    try:
        signers = tuple([bytes.fromhex(key) for key in keys])
    except (TypeError, ValueError):
        signers = (b"",)
    if len(signers) > _MOST_SIGNERS or not (signers or insecure) or [key for key in signers if len(key) != _KEY_BYTES]:
        raise Invalid(
            "signers is %r, expected 1 to %d public keys of %d bytes in hexadecimal, or none with insecure"
            % (keys, _MOST_SIGNERS, _KEY_BYTES)
        )
    return signers


def parse_policy(data: bytes) -> Policy:
    """Parse the policy in JSON bytes. Raises Invalid, naming the field."""
    if len(data) > LARGEST:
        raise Invalid("the policy has %d bytes, expected at most %d" % (len(data), LARGEST))
    try:
        fields = json.loads(data)
    except (ValueError, RuntimeError):
        raise Invalid("the policy is not JSON")
    if not isinstance(fields, dict):
        raise Invalid("the policy is not a JSON object")
    return Policy(fields)
