"""The campaign: the public, retained broadcast that says what is measured, and how it is perturbed in one epoch.

Message = 12-byte header (``UTC1``, issued_at u32, body length u32, big-endian) + body, JSON bytes fixed for the
epoch. Republication changes the header only. Every report carries the body's fingerprint.
"""

import hashlib
import json
import struct

from undertone_shared.checks import SMALL, check_integer, check_object
from undertone_shared.cohort import WHOLE
from undertone_shared.errors import Invalid
from undertone_shared.mechanism import WindowMechanism
from undertone_shared.notation import parse_mechanism
from undertone_shared.topics import check_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from undertone_shared.notation import Mechanism
    from undertone_shared.stream import StreamRule

VERSION = 1
MAGIC = b"UTC1"
HEADER_BYTES = 12
LARGEST_BODY = 12288
SEED_BYTES = 16
# Reports under an epoch are admitted this many slots into the next one.
GRACE_SLOTS = 2

MEASURES = ("sum", "mean", "last", "max", "duration", "counter")
LARGEST_TIME = 0xFFFFFFFF
_READING = SMALL - 1
FIELDS = (
    "version campaign sensor unit measure offset bound slot_seconds cycle epoch last_slot default cohort report"
).split()


class Cohort:
    """Who reports for the threshold, and how: ``share / 2^24`` of all (device, slot) by the rule of `cohort`."""

    def __init__(self, seed: bytes, share: int, mechanism: "Mechanism"):
        if not isinstance(seed, bytes) or len(seed) != SEED_BYTES:
            raise Invalid("cohort.seed is %r, expected %d bytes" % (seed, SEED_BYTES))
        check_integer("cohort.share", share, 0, WHOLE)
        if not isinstance(mechanism, WindowMechanism) or mechanism.edges is None:
            raise Invalid("cohort.mechanism is not a square-wave with edges")
        self.seed = seed
        self.share = share
        self.mechanism = mechanism


class ReportRule:
    """How everybody else reports: truncation to [low, theta], then ``mechanism`` on x - low in [0, theta - low]."""

    def __init__(self, low: int, theta: int, mechanism: "Mechanism"):
        check_integer("report.low", low, 0, _READING)
        check_integer("report.theta", theta, low + 1, _READING)
        if mechanism.edges is not None:
            raise Invalid("report.mechanism is a square-wave, which has no unbiased decode")
        if not mechanism.covers(theta - low):
            raise Invalid("report.mechanism does not cover 0 to theta - low = %d" % (theta - low))
        self.low = low
        self.theta = theta
        self.mechanism = mechanism

    @property
    def width(self) -> int:
        """theta - low: the range that the mechanism covers."""
        return self.theta - self.low


class Campaign:
    """One epoch of one campaign, validated. ``body`` are its exact bytes, ``fingerprint`` their sha256's first 4.

    ``epoch``: Unix second at which its first slot starts. ``bound``: public upper bound B of reading - ``offset``.
    ``cycle``: slots per day or other natural period. ``default``: the public reading sent when the sensor failed.
    ``report`` is None in a threshold epoch, where every device is in the cohort, and in a ``stream`` campaign, where
    none is.
    """

    def __init__(self, body: "bytes | memoryview"):
        if len(body) > LARGEST_BODY:
            raise Invalid("the campaign has %d bytes, expected at most %d" % (len(body), LARGEST_BODY))
        value = _parse(body)
        # The field "stream" is there in stream campaigns only.
        streams = isinstance(value, dict) and "stream" in value
        fields = check_object("the campaign", value, tuple(FIELDS + ["stream"] if streams else FIELDS))
        check_integer("version", fields["version"], VERSION, VERSION)
        self.body: bytes | memoryview = body
        self.fingerprint = hashlib.sha256(body).digest()[:4]
        self.name = check_name("campaign", fields["campaign"])
        self.sensor = check_name("sensor", fields["sensor"])
        self.unit = fields["unit"]
        if not isinstance(self.unit, str) or len(self.unit) > 16:
            raise Invalid("unit is %r, expected text of at most 16 characters" % (self.unit,))
        self.measure = fields["measure"]
        if self.measure not in MEASURES:
            raise Invalid("measure is %r, expected one of %s" % (self.measure, ", ".join(MEASURES)))
        self.offset = check_integer("offset", fields["offset"], -_READING, _READING)
        self.bound = check_integer("bound", fields["bound"], 1, _READING)
        self.slot_seconds = check_integer("slot_seconds", fields["slot_seconds"], 1, 7 * 86400)
        self.cycle = check_integer("cycle", fields["cycle"], 1, 1 << 20)
        self.epoch = check_integer("epoch", fields["epoch"], 0, LARGEST_TIME)
        if self.epoch % self.slot_seconds:
            raise Invalid("epoch is %d, expected a multiple of slot_seconds = %d" % (self.epoch, self.slot_seconds))
        self.first_slot = self.epoch // self.slot_seconds
        self.last_slot = check_integer(
            "last_slot", fields["last_slot"], self.first_slot, LARGEST_TIME // self.slot_seconds - 1
        )
        self.default = check_integer("default", fields["default"], self.offset, self.offset + self.bound)
        self.report: ReportRule | None = None
        self.stream: StreamRule | None = None
        if streams:
            # A board without streams never loads their code.
            from undertone_shared.stream import parse_stream

            self.cohort, self.stream = parse_stream(fields, self.bound)
            return
        # Out of the parsed value: on a board, a table needs the room.
        self.cohort = _cohort(fields.pop("cohort"))
        if fields["report"] is None:
            if self.cohort.share != WHOLE:
                raise Invalid("cohort.share is %d, expected 2^24 in an epoch without a report rule" % self.cohort.share)
        else:
            report = check_object("report", fields["report"], ("low", "theta", "mechanism"))
            mechanism = parse_mechanism("report.mechanism", report["mechanism"])
            self.report = ReportRule(report["low"], report["theta"], mechanism)
            if self.report.theta > self.bound:
                raise Invalid("report.theta is %d, expected at most the bound %d" % (self.report.theta, self.bound))

    @property
    def end(self) -> int:
        """The Unix second at which the last slot ends."""
        return (self.last_slot + 1) * self.slot_seconds


def _cohort(value: object) -> Cohort:
    fields = check_object("cohort", value, ("seed", "share", "mechanism"))
    mechanism = parse_mechanism("cohort.mechanism", fields["mechanism"])
    return Cohort(_hex("cohort.seed", fields["seed"]), fields["share"], mechanism)


def _hex(name: str, value: object) -> bytes:
    if isinstance(value, str) and len(value) % 2 == 0:
        for character in value:
            if character not in "0123456789abcdef":
                break
        else:
            return bytes.fromhex(value)
    raise Invalid("%s is %r, expected lower-case hexadecimal" % (name, value))


def header(message: "bytes | memoryview") -> tuple[int, bytes]:
    """(issued_at, fingerprint) of a message, its body not parsed. Raises Invalid for a header that does not fit."""
    size = len(message)
    if size <= HEADER_BYTES or size > HEADER_BYTES + LARGEST_BODY:
        raise Invalid(
            "the campaign message has %d bytes, expected %d to %d"
            % (size, HEADER_BYTES + 1, HEADER_BYTES + LARGEST_BODY)
        )
    magic, issued_at, length = struct.unpack(">4sII", message[:HEADER_BYTES])
    if magic != MAGIC:
        raise Invalid("the campaign message starts with %r, expected %r" % (magic, MAGIC))
    if length != size - HEADER_BYTES:
        raise Invalid("the campaign's length field is %d, expected %d" % (length, size - HEADER_BYTES))
    return issued_at, hashlib.sha256(body_of(message)).digest()[:4]


def body_of(message: "bytes | memoryview") -> memoryview:
    """The body of a message, not copied: on a board, it is most of what a campaign takes."""
    return memoryview(message)[HEADER_BYTES:]


def _parse(body: "bytes | memoryview") -> object:
    try:
        try:
            return json.loads(body)  # type: ignore[arg-type]
        except TypeError:  # CPython's takes no memoryview
            return json.loads(bytes(body))
    except (ValueError, RuntimeError):
        raise Invalid("the campaign is not JSON")
