"""The campaign: the public, retained broadcast that says what is measured, and how it is perturbed in one epoch.

Message = 12-byte header (``UTC2``, issued_at u32, body length u32, big-endian) + body + 64 bytes of signature. The body
is canonical JSON (keys sorted, no white space), fixed for the epoch; every report carries its fingerprint. The header
is not signed, because every republication changes it. A forged header has little effect, because ``issued_at`` must
agree with the device's clock. The signature is an Ed25519 signature of `digest_of` the body, or all zero if the
campaign is not signed. A hand-over may follow the signature (`undertone_shared.handover`).
"""

import hashlib
import struct

from undertone_shared import scalar
from undertone_shared.checks import SMALL, check_integer, check_kind, check_object, check_text, parse_json
from undertone_shared.errors import Invalid
from undertone_shared.report import FINGERPRINT_BYTES
from undertone_shared.schedule import Schedule, check_coprime
from undertone_shared.topics import check_name

try:
    from undertone_shared.off_board.campaign_analysis import CampaignAnalysis
except ImportError:  # MicroPython boards do not have the package off_board.
    CampaignAnalysis = object  # type: ignore[assignment,misc]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from undertone_shared.scalar import ScalarRule
    from undertone_shared.stream import StreamRule

    Rule = ScalarRule | StreamRule
    Parser = Callable[[dict[str, Any], int, int, Schedule], Rule]

VERSION = 2
MAGIC = b"UTC2"
HEADER_BYTES = 12
SIGNATURE_BYTES = 64
LARGEST_BODY = 12288
LONGEST_UNIT = 16

MEASURES = ("sum", "mean", "last", "max", "duration", "counter")
LARGEST_TIME = 0xFFFFFFFF
_READING = SMALL - 1
_FIELDS = (
    "version campaign sensor unit measure offset bound slot_seconds cycle epoch last_slot default cohort rule schedule"
).split()


def _stream(fields: "dict[str, Any]", bound: int, cycle: int, schedule: Schedule) -> "StreamRule":
    # The import is inside the function, so that a board without streams never loads the code of streams.
    from undertone_shared import stream

    return stream.parse_rule(fields, bound, cycle, schedule)


# Kind of rule, as in a campaign's field, -> the function that parses it. A rule is a way of collecting reports.
RULES: "dict[str, Parser]" = {"scalar": scalar.parse_rule, "stream": _stream}


class Campaign(CampaignAnalysis):
    """One epoch of one campaign, validated. Raises Invalid, naming the field.

    ``body``: the exact bytes of its JSON. ``fingerprint``: the first 8 bytes of the body's sha256. ``epoch``: Unix
    second at which the epoch's first slot starts. ``bound``: public upper bound B of reading - ``offset``. ``cycle``:
    slots per day or other natural period. ``default``: the public value that a device takes as its reading if the
    sensor failed. ``rule``: the way of collecting, of one of the kinds of `RULES`.
    """

    def __init__(self, body: "bytes | memoryview"):
        value = parse_json("the campaign", body, LARGEST_BODY)
        digest = hashlib.sha256(body).digest()
        if not _is_canonical(value, digest):
            raise Invalid("the campaign is not canonical JSON")
        fields = check_object("the campaign", value, _FIELDS)
        check_integer("version", fields["version"], VERSION, VERSION)
        self.body: bytes | memoryview = body
        self.fingerprint = digest[:FINGERPRINT_BYTES]
        self.name = check_name("campaign", fields["campaign"])
        self.sensor = check_name("sensor", fields["sensor"])
        self.unit = check_text("unit", fields["unit"], LONGEST_UNIT)
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
        self.schedule = _schedule(fields["schedule"], self.cycle)
        parse_rule = RULES[check_kind("rule", fields["rule"], RULES)]
        self.rule: Rule = parse_rule(fields, self.bound, self.cycle, self.schedule)

    @property
    def end(self) -> int:
        """The Unix second at which the last slot ends."""
        return (self.last_slot + 1) * self.slot_seconds


def _schedule(value: object, cycle: int) -> Schedule:
    fields = check_object("schedule", value, ("seed", "stride", "cohort_stride"))
    try:
        seed = bytes.fromhex(fields["seed"])
    except (TypeError, ValueError):
        raise Invalid("schedule.seed is %r, expected hexadecimal" % (fields["seed"],))
    schedule = Schedule(seed, fields["stride"], fields["cohort_stride"])
    check_coprime("stride", schedule.stride, "cycle", cycle)
    check_coprime("cohort_stride", schedule.cohort_stride, "cycle", cycle)
    return schedule


def header(message: "bytes | memoryview") -> tuple[int, bytes]:
    """Return (issued_at, fingerprint) of a message without parsing its body. Raises Invalid for a wrong header."""
    size = len(message)
    least = HEADER_BYTES + SIGNATURE_BYTES
    if size <= least or size > least + LARGEST_BODY:
        raise Invalid("the campaign message has %d bytes, expected %d to %d" % (size, least + 1, least + LARGEST_BODY))
    magic, issued_at, length = struct.unpack(">4sII", message[:HEADER_BYTES])
    if magic != MAGIC:
        raise Invalid("the campaign message starts with %r, expected %r" % (magic, MAGIC))
    rest = size - least - length
    # Either nothing follows the campaign's signature, or a hand-over, which ends with a signature of its own.
    if not length or rest < 0 or 0 < rest <= SIGNATURE_BYTES:
        raise Invalid("the message's length field is %d, which does not fit its %d bytes" % (length, size))
    return issued_at, hashlib.sha256(body_of(message)).digest()[:FINGERPRINT_BYTES]


def _end(message: "bytes | memoryview") -> int:
    return HEADER_BYTES + int(struct.unpack(">I", message[8:HEADER_BYTES])[0])


def body_of(message: "bytes | memoryview") -> memoryview:
    """Return the body of a message without copying it: on a board the body is most of a campaign's memory.

    This function, `signature_of` and `handover_of` rely on a header that `header` has checked.
    """
    return memoryview(message)[HEADER_BYTES : _end(message)]


def signature_of(message: "bytes | memoryview") -> bytes:
    """Return the signature of a message."""
    return bytes(message[_end(message) : _end(message) + SIGNATURE_BYTES])


def handover_of(message: "bytes | memoryview") -> memoryview:
    """Return what follows the campaign's signature: a signed hand-over, or no bytes."""
    return memoryview(message)[_end(message) + SIGNATURE_BYTES :]


def digest_of(body: "bytes | memoryview") -> bytes:
    """Return the digest that is signed: sha256("undertone campaign 2\\n" + body).

    The body itself is not signed, because a board's SHA-512, a part of Ed25519, handles one block only.
    """
    digest = hashlib.sha256(b"undertone campaign 2\n")
    digest.update(body)
    return digest.digest()


def write_canonical(value: "Any", put: "Callable[[bytes], object]") -> None:
    """Write a JSON value of objects, lists, text, integers and null in its canonical form, piece by piece.

    Text is written without escapes. Text that needs an escape has no canonical form, nor has a value of another type.
    """
    named = isinstance(value, dict)
    if named or isinstance(value, list):
        put(b"{" if named else b"[")
        lead = b""
        for element in sorted(value) if named else value:
            put(lead)
            lead = b","
            write_canonical(element, put)
            if named:
                put(b":")
                write_canonical(value[element], put)
        put(b"}" if named else b"]")
    elif isinstance(value, str):
        put(('"%s"' % value).encode())
    elif value is None:
        put(b"null")
    else:
        put(("%d" % value).encode() if isinstance(value, int) else b"?")


def _is_canonical(value: object, digest: bytes) -> bool:
    # The body's digest is compared with that of the canonical form, because a board has no memory for a second copy of
    # the body.
    canonical = hashlib.sha256(b"")
    try:
        write_canonical(value, canonical.update)
    # RuntimeError: the value is nested too deeply. ValueError: it contains half of a surrogate pair. TypeError: on a
    # board, an object in it has keys of two types.
    except (RuntimeError, ValueError, TypeError):
        return False
    return canonical.digest() == digest
