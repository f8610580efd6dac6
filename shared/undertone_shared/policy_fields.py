"""The fields of a policy, checked one by one. A board unloads this code after the start."""

from undertone_shared.campaign import LONGEST_UNIT, MEASURES
from undertone_shared.checks import check_cap, check_integer, check_object, check_text
from undertone_shared.errors import Invalid
from undertone_shared.topics import check_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

VERSION = 1
_MOST_SIGNERS = 4
_KEY_BYTES = 32
_AGREED_DIGITS = 32
_YEAR = 366 * 86400
# Largest rest in seconds: about half the time after which the device's tick counter wraps around, 2^30 ms = 12.4 days.
_LARGEST_REST_SECONDS = 6 * 86400

_NEEDED = ("version", "sensor", "measures", "cap", "slot_seconds", "theta", "duration_seconds")


def default_fields() -> "dict[str, Any]":
    """Return the fields of a policy with their defaults. A policy must give the fields in ``_NEEDED`` itself."""
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
        # In any ``period_seconds`` there are at most ``reports_per_period`` reports. By default the period is a day.
        "period_seconds": 86400,
        "reports_per_period": 48,
        # Least time in seconds from the end of one reported interval to the beginning of the next, at most six days.
        "rest_seconds": 0,
        # What measures rests and periods. "ticks": the clock, and also the tick counter, which nobody can set. "clock":
        # the clock alone, which the network can set. None means "clock" with one_shot, and otherwise "ticks".
        "rest_by": None,
        # The largest sum of the epsilon of all single reports ever, in units of 2^-20, 0 for no limit. Streams have a
        # limit of their own.
        "lifetime": 0,
        # An epoch begins at least this many seconds after the one before it; 0 means one cycle of the campaign.
        "epoch_seconds": 0,
        # At most this many boots of one day (UTC) may draw reports.
        "boots_per_day": 4,
        # Least time in seconds between writes to flash. If slots are shorter, several of them are reserved in one
        # write.
        "write_seconds": 60,
        # True if the device draws one report each time it wakes. Boards whose clock stops in sleep need that.
        "one_shot": False,
        # True allows MQTT without TLS, and campaigns without a signature, for a demonstration on loopback.
        "insecure": False,
        # Public keys (Ed25519, 32 bytes in hexadecimal), at most 4, one of which must have signed a campaign.
        "signers": (),
        # How many seconds after the clock's time an epoch may start. An epoch must be later than the one before, so an
        # epoch in the far future would block all others. The limit holds for the number of a hand-over, too.
        "lead_seconds": 86400,
        # The limits of streams, see `undertone_shared.stream_policy`; False: no stream is allowed.
        "stream": False,
        # True: a signer may send the device to another address, and to another campaign that this policy allows.
        "handover": False,
        # The fingerprint of what the household agreed to, 32 hexadecimal digits, "" for none. The device follows a
        # hand-over to other campaigns only if the hand-over's ``agreed`` has this fingerprint.
        "agreed": "",
    }


def set_fields(policy: "Any", fields: "dict[str, Any]") -> None:
    """Check the fields of a policy, and set them as attributes of a `Policy`. Raises Invalid for a wrong field."""
    merged = default_fields()
    merged.update(check_object("the policy", fields, _NEEDED, merged))
    check_integer("version", merged["version"], VERSION, VERSION)
    for name, least, most in (
        ("slot_seconds", 1, 7 * 86400),
        ("duration_seconds", 1, 100 * _YEAR),
        ("until", 0, 0xFFFFFFFF),
        ("period_seconds", 1, _YEAR),
        ("reports_per_period", 1, 1 << 24),
        ("rest_seconds", 0, _LARGEST_REST_SECONDS),
        ("lifetime", 0, 1 << 62),
        ("epoch_seconds", 0, _YEAR),
        ("boots_per_day", 1, 1000),
        ("write_seconds", 1, 86400),
        ("lead_seconds", 1, _YEAR),
    ):
        setattr(policy, name, check_integer(name, merged[name], least, most))
    for name in ("one_shot", "insecure", "handover"):
        if not isinstance(merged[name], bool):
            raise Invalid("%s is %r, expected true or false" % (name, merged[name]))
        setattr(policy, name, merged[name])
    policy.sensor = check_name("sensor", merged["sensor"])
    measures = merged["measures"]
    if not isinstance(measures, list) or not measures or [m for m in measures if m not in MEASURES]:
        raise Invalid("measures is %r, expected a list of some of %s" % (measures, ", ".join(MEASURES)))
    policy.measures = tuple(measures)
    policy.unit = check_text("unit", merged["unit"], LONGEST_UNIT)
    check_cap(merged["cap"])
    policy.cap = (merged["cap"][0], merged["cap"][1])
    theta = merged["theta"]
    if not isinstance(theta, list) or len(theta) != 2:
        raise Invalid("theta is %r, expected the list [least, most]" % (theta,))
    low = check_integer("theta[0]", theta[0], 1, (1 << 30) - 1)
    policy.theta = (low, check_integer("theta[1]", theta[1], low, (1 << 30) - 1))
    policy.signers = _signers(merged["signers"], policy.insecure)
    if policy.handover and not policy.signers:
        raise Invalid("handover needs signers")
    agreed = merged["agreed"]
    if not isinstance(agreed, str) or len(agreed) not in (0, _AGREED_DIGITS) or agreed.strip("0123456789abcdef"):
        raise Invalid("agreed is %r, expected %d digits of 0-9a-f" % (agreed, _AGREED_DIGITS))
    policy.agreed = agreed
    policy.rest_by = merged["rest_by"] or ("clock" if policy.one_shot else "ticks")
    # The tick counter starts anew after a deep sleep, so a device with one_shot cannot measure a rest by ticks.
    if policy.rest_by != "clock" and (policy.one_shot or policy.rest_by != "ticks"):
        raise Invalid("rest_by is %r, expected 'clock', or 'ticks' without one_shot" % (policy.rest_by,))
    policy.stream = None
    if merged["stream"] is not False:
        # The import is inside the function, so that a board without streams never loads the code of streams.
        from undertone_shared.stream_policy import StreamPolicy

        policy.stream = StreamPolicy(merged["stream"])


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
