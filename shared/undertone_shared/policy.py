"""The device owner's policy, fixed when the device's files are made.

A device refuses a campaign that its policy does not allow, and says why. Neither server nor broker can change the
policy.

The words with which the device says why it refused a campaign:

============== ========================================================================
invalid        not a campaign
topic          it came on another campaign's topic
sensor         another sensor than this device's
measure        a slot value that the owner does not allow
unit           readings in another unit than the owner allows
slot_seconds   slots shorter than allowed
epsilon        a mechanism's certificate exceeds the cap
theta          theta outside the allowed range
stream         a stream that the owner does not allow, or not of this kind or dimension
rho            a stream's privacy budget exceeds the cap, or what is left of it or of the lifetime
rest           a stream, although the owner wants rest between reports
duration       it lasts longer than allowed
until          it ends later than allowed
sensor_busy    another campaign holds the sensor
epoch_rollback its epoch is not later than the accepted one
epoch_too_soon its epoch begins less than the minimum time after the accepted one
epoch_pending  another accepted epoch has not begun yet
epoch_ahead    its epoch begins further ahead than allowed
signature      none of the owner's signers signed it
ended          its last slot is over
clock          issued_at and the device's clock differ by more than a day
storage        the device could not store it
============== ========================================================================
"""

from undertone_shared.campaign import Campaign
from undertone_shared.checks import parse_json
from undertone_shared.errors import Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from undertone_shared.stream_policy import StreamPolicy

LARGEST = 4096


class Policy:
    """Limits that the owner of one sensor sets. Raises Invalid for wrong ones; `policy_fields` explains each."""

    sensor: str
    measures: "tuple[str, ...]"
    unit: str
    cap: "tuple[int, int]"
    slot_seconds: int
    theta: "tuple[int, int]"
    duration_seconds: int
    until: int
    period_seconds: int
    reports_per_period: int
    rest_seconds: int
    rest_by: str
    lifetime: int
    epoch_seconds: int
    boots_per_day: int
    write_seconds: int
    one_shot: bool
    insecure: bool
    signers: "tuple[bytes, ...]"
    lead_seconds: int
    stream: "StreamPolicy | None"
    handover: bool
    agreed: str

    def __init__(self, fields: "dict[str, Any]"):
        # The import is inside the method, so that a board can unload this code after the start.
        from undertone_shared.policy_fields import set_fields

        set_fields(self, fields)

    def check_campaign(self, campaign: Campaign) -> None:
        """Check a campaign by itself. Raises Refused if it is more than the owner allows."""
        if campaign.sensor != self.sensor:
            raise _refused("sensor", campaign.sensor, self.sensor)
        if campaign.measure not in self.measures:
            raise _refused("measure", campaign.measure, " or ".join(self.measures))
        if self.unit and campaign.unit != self.unit:
            raise _refused("unit", campaign.unit, self.unit)
        if campaign.slot_seconds < self.slot_seconds:
            raise _refused("slot_seconds", campaign.slot_seconds, "at least %d" % self.slot_seconds)
        duration = campaign.end - campaign.epoch
        if duration > self.duration_seconds:
            raise _refused("duration", duration, "at most %d seconds" % self.duration_seconds)
        if self.until and campaign.end > self.until:
            raise Refused(
                "until", "the campaign ends at %d, expected at most %d (Unix seconds)" % (campaign.end, self.until)
            )
        rule = campaign.rule
        limits: Any = self.stream if rule.kind == "stream" else None
        if rule.kind != "scalar" and limits is None:
            raise Refused(rule.kind, "the campaign is a %s, which the policy does not allow" % rule.kind)
        for _, _, theta in rule.ranges:
            if not self.theta[0] <= theta <= self.theta[1]:
                raise _refused("theta", theta, "%d to %d" % self.theta)
        for name, mechanism in rule.mechanisms:
            if not mechanism.permits(self.cap):
                certificate = mechanism.certificate()
                raise Refused(
                    "epsilon",
                    "%s.mechanism has the certificate %d/%d, expected at most %d/%d"
                    % ((name,) + certificate + self.cap),
                )
        if limits is not None:
            if self.rest_seconds:
                raise Refused(
                    "rest",
                    "the campaign is a %s, but the policy asks for %d s of rest" % (rule.kind, self.rest_seconds),
                )
            limits.check(campaign, rule)

    def check_signature(self, digest: bytes, signature: bytes, alive: "Callable[[], object] | None" = None) -> None:
        """Check that one of the signers signed the digest of a campaign or of a hand-over. Raises Refused.

        A policy without signers, which must be insecure, accepts every signature. ``alive`` feeds a watchdog.
        """
        if not self.signers:
            return
        # The import is inside the method, so that a board loads Ed25519's code only when there is a signature to check.
        from undertone_shared import garbage
        from undertone_shared.ed25519 import verify

        # Verification makes a megabyte of garbage.
        before = garbage.set_threshold(-1)
        try:
            for key in self.signers:
                if verify(key, digest, signature, alive):
                    return
        finally:
            garbage.collect()
            garbage.set_threshold(before)
        raise Refused("signature", "no signer that the policy names signed this message")

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
        if accepted and now < accepted.end and campaign.name not in (accepted.name,) + successors:
            raise Refused("sensor_busy", "campaign %s uses the sensor until it ends" % accepted.name)
        if campaign.end <= now:
            raise Refused("ended", "the campaign ended at %d, and now is %d (Unix seconds)" % (campaign.end, now))
        if campaign.epoch > now + self.lead_seconds:
            raise Refused(
                "epoch_ahead",
                "epoch is %d, expected at most %d s after now (%d)" % (campaign.epoch, self.lead_seconds, now),
            )
        if last_epoch:
            if campaign.epoch <= last_epoch:
                raise Refused(
                    "epoch_rollback", "epoch is %d, expected a later second than %d" % (campaign.epoch, last_epoch)
                )
            least = self.epoch_seconds or campaign.cycle * campaign.slot_seconds
            if campaign.epoch < last_epoch + least:
                raise Refused(
                    "epoch_too_soon",
                    "epoch is %d, expected at least %d s after epoch %d" % (campaign.epoch, least, last_epoch),
                )


def _refused(reason: str, value: object, allowed: object) -> Refused:
    return Refused(reason, "%s is %s, expected %s" % (reason, value, allowed))


def parse_policy(data: bytes) -> Policy:
    """Parse the policy in JSON bytes. Raises Invalid, naming the field."""
    return Policy(parse_json("the policy", data, LARGEST))
