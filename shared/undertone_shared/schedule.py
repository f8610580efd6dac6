"""The schedule of reports: a public rule with one hash per device and campaign, computed by devices and the server.

h and h' are the first and the next four bytes of sha256(seed ‖ device name), big-endian. With the stride s it is the
device's turn in slot t iff (t + h) mod s = 0; its turns are numbered k = (t + h) // s. In turn k it belongs to the
threshold cohort iff (k + h') mod c = 0, where c is the cohort's stride. With c = 1 every turn belongs to the cohort,
with c = 0 none.

Both rules together are one number, the device's place q = (h + s h') mod sc: slot t is its turn iff s divides t + q,
and a turn of the cohort iff sc divides t + q. (With c = 0, q = h mod s.)

Any two of the cycle and the two strides have no common divisor except 1. Otherwise a device's turns would never come in
some slots of the cycle, for example at some hours of the day. With a stride of w + 1 a device rests w slots between the
end of one turn and the next.
"""

import hashlib

from undertone_shared.checks import check_integer
from undertone_shared.errors import Invalid

SEED_BYTES = 16
_LARGEST_STRIDE = 1 << 20


class Schedule:
    """A device reports in one of ``stride`` slots, and in one of ``cohort_stride`` turns for the threshold.

    Raises Invalid.
    """

    def __init__(self, seed: bytes, stride: int, cohort_stride: int):
        if not isinstance(seed, bytes) or len(seed) != SEED_BYTES:
            raise Invalid("schedule.seed is %r, expected %d bytes" % (seed, SEED_BYTES))
        self.seed = seed
        self.stride = check_integer("schedule.stride", stride, 1, _LARGEST_STRIDE)
        self.cohort_stride = check_integer("schedule.cohort_stride", cohort_stride, 0, _LARGEST_STRIDE)
        check_coprime("cohort_stride", cohort_stride, "stride", stride)

    def place(self, device: str) -> int:
        """Return the device's place q (see the module's docstring), by one hash."""
        digest = hashlib.sha256(self.seed + device.encode()).digest()
        return self.place_of(int.from_bytes(digest[:4], "big"), int.from_bytes(digest[4:8], "big"))

    def place_of(self, first: int, second: int) -> int:
        """Return the place q for h = ``first`` and h' = ``second``, which are integers below 2^32 or arrays of them."""
        return (first + self.stride * second) % (self.stride * self.cohort_stride or self.stride)

    def is_turn(self, place: int, slot: int) -> bool:
        """Return True if the device at ``place`` reports in ``slot``."""
        return (slot + place) % self.stride == 0

    def is_member(self, place: int, slot: int) -> bool:
        """Return True if the device at ``place`` reports for the threshold in ``slot``."""
        return self.cohort_stride > 0 and (slot + place) % (self.stride * self.cohort_stride) == 0


def check_coprime(name: str, stride: int, other: str, number: int) -> None:
    """Check that the schedule's ``stride`` and ``number`` have no common divisor except 1. Raises Invalid.

    A stride of 0 is not used, so it is accepted.
    """
    a, b = stride, number
    while b:
        a, b = b, a % b
    if stride and a != 1:
        raise Invalid("schedule.%s is %d, expected no divisor in common with the %s %d" % (name, stride, other, number))
