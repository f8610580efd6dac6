"""Verification of Ed25519 signatures of short messages (RFC 8032, without the cofactor); signing is not included.

The curve is -x² + y² = 1 + d x² y² over p = 2^255 - 19. Every input is public, so the code need not run in constant
time. A board loads this module only when a campaign with a new body, or a new hand-over, arrives.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    # Y - X, Y + X, 2Z and 2dT of a point in extended coordinates, xy = T/Z: the form that an addition uses.
    Cached = bytes
    Point = tuple[int, int, int, int]

P = (1 << 255) - 19
ORDER = (1 << 252) + 0x14DEF9DEA2F79CD65812631A5CF5D3ED
_D = 0x52036CEE2B6FFE738CC740797779E89800700A4D4141D8AB75EB4DCA135978A3
_ROOT_OF_MINUS_ONE = 0x2B8324804FC1DF0B2B4D00993DFBD7A72F431806AD2FE478C4EE1B274A0EA0B0
_BASE_X = 0x216936D3CD6E53FEC0A4E231FDD6DC5C692CC7609525A7B2C9562D608F25D51A
_BASE_Y = 0x6666666666666666666666666666666666666666666666666666666666666658
_WORD = (1 << 64) - 1
_LONGEST = 47


def verify(key: bytes, message: bytes, signature: bytes, alive: "Callable[[], object] | None" = None) -> bool:
    """Return True if ``signature`` (64 bytes) is valid for ``message`` (at most 47 bytes) under ``key`` (32 bytes).

    Also returns False for a key or an R of small order, for coordinates that are not below p, and for S not below the
    order. ``alive`` is called a few dozen times during the work, to feed a watchdog.
    """
    if len(key) != 32 or len(signature) != 64 or len(message) > _LONGEST:
        return False
    s = int.from_bytes(signature[32:], "little")
    point = _decode(key)
    if s >= ORDER or point is None or _small(point):
        return False
    k = int.from_bytes(_sha512(signature[:32] + key + message), "little") % ORDER
    x, y, z, t = point
    x, y, z, t = _combine(s, k, (P - x, y, z, P - t), alive)
    if _small((x, y, z, t)):
        return False
    inverse = _repeat(_power(z), 3) * z % P * z % P * z % P
    x = x * inverse % P
    y = y * inverse % P
    return (y | (x & 1) << 255).to_bytes(32, "little") == signature[:32]


def _combine(s: int, k: int, point: "Point", alive: "Callable[[], object] | None") -> "Point":
    """Return [s]B + [k]point, processing two bits of both scalars at a time (Straus)."""
    table = _table(point)
    x, y, z, t = 0, 1, 1, 0
    for shift in range(252, -1, -2):
        for last in (False, True):
            a = x * x % P
            b = y * y % P
            h = a + b
            e = h - (x + y) * (x + y) % P
            g = a - b
            f = 2 * z * z % P + g
            x = e * f % P
            y = g * h % P
            z = f * g % P
            if last:
                t = e * h % P
        cached = table[(s >> shift & 3) << 2 | k >> shift & 3]
        if cached is not None:
            x, y, z, t = _add((x, y, z, t), cached)
        if alive is not None and shift & 7 == 0:
            alive()
    return x, y, z, t


def _table(point: "Point") -> "list[Cached | None]":
    """Return the list that has [i]B + [j]point at index 4 i + j, for i and j of 0 to 3; None at index 0."""
    base = _cached((_BASE_X, _BASE_Y, 1, _BASE_X * _BASE_Y % P))
    other = _cached(point)
    table: list[Cached | None] = [None] * 16
    row: Point = (0, 1, 1, 0)
    for i in range(4):
        sum = row
        for j in range(4):
            if i or j:
                table[4 * i + j] = _cached(sum)
            sum = _add(sum, other)
        row = _add(row, base)
    return table


def _cached(point: "Point") -> "Cached":
    # On a board, an integer keeps the memory of the products that it was computed from. The table takes half the memory
    # if its entries are bytes.
    x, y, z, t = point
    return b"".join([(n % P).to_bytes(32, "little") for n in (y - x, y + x, 2 * z, 2 * _D * t)])


def _add(point: "Point", cached: "Cached") -> "Point":
    x, y, z, t = point
    a = (y - x) * int.from_bytes(cached[:32], "little") % P
    b = (y + x) * int.from_bytes(cached[32:64], "little") % P
    c = t * int.from_bytes(cached[96:], "little") % P
    d = z * int.from_bytes(cached[64:96], "little") % P
    e = b - a
    f = d - c
    g = d + c
    h = b + a
    return e * f % P, g * h % P, f * g % P, e * h % P


def _small(point: "Point") -> bool:
    """Return True if the point's order divides 8."""
    for _ in range(3):
        point = _add(point, _cached(point))
    return point[0] == 0 and (point[1] - point[2]) % P == 0


def _decode(data: bytes) -> "Point | None":
    y = int.from_bytes(data, "little")
    sign = y >> 255
    y &= (1 << 255) - 1
    if y >= P:
        return None
    u = (y * y - 1) % P
    v = (_D * y * y + 1) % P
    # The candidate u (u v)^((p-5)/8) is a square root of u/v, or is one after multiplication by the root of -1, or u/v
    # has no root: the candidate's square times v is u (u v)^((p-1)/4).
    x = _power(u * v % P) * u % P
    square = v * x % P * x % P
    if square != u:
        if (square + u) % P:
            return None
        x = x * _ROOT_OF_MINUS_ONE % P
    if x == 0 and sign:
        return None
    if x & 1 != sign:
        x = P - x
    return x, y, 1, x * y % P


def _power(z: int) -> int:
    """Return z^((p-5)/8) = z^(2^252 - 3), by powers of z to 2^n - 1 with n = 1, 2, 4, 5, 10, 20, 40, 50, 100,
    200, 250.
    """
    two = z * z % P * z % P
    four = _repeat(two, 2) * two % P
    five = four * four % P * z % P
    ten = _repeat(five, 5) * five % P
    twenty = _repeat(ten, 10) * ten % P
    fifty = _repeat(_repeat(twenty, 20) * twenty % P, 10) * ten % P
    hundred = _repeat(fifty, 50) * fifty % P
    most = _repeat(_repeat(hundred, 100) * hundred % P, 50) * fifty % P
    return _repeat(most, 2) * z % P


def _repeat(x: int, times: int) -> int:
    """Return x^(2^times)."""
    for _ in range(times):
        x = x * x % P
    return x


def _sha512(data: bytes) -> bytes:
    """Return SHA-512 of at most 111 bytes: one block (FIPS 180-4)."""
    block = data + b"\x80" + bytes(111 - len(data)) + (8 * len(data)).to_bytes(16, "big")
    w = [int.from_bytes(block[i : i + 8], "big") for i in range(0, 128, 8)]
    start = tuple(_fractions(2, 8))
    a, b, c, d, e, f, g, h = start
    for i, constant in enumerate(_fractions(3, 80)):
        now = w[i & 15]
        t = (h + _mix(e, 14, 18, 41) + (e & f ^ ~e & g) + constant + now) & _WORD
        h, g, f, e = g, f, e, (d + t) & _WORD
        d, c, b, a = c, b, a, (t + _mix(a, 28, 34, 39) + (a & b ^ a & c ^ b & c)) & _WORD
        x = w[i + 1 & 15]
        y = w[i + 14 & 15]
        x = _mix(x, 1, 8) ^ x >> 7
        w[i & 15] = (now + x + w[i + 9 & 15] + (_mix(y, 19, 61) ^ y >> 6)) & _WORD
    end = (a, b, c, d, e, f, g, h)
    return b"".join([(start[i] + end[i] & _WORD).to_bytes(8, "big") for i in range(8)])


def _mix(x: int, i: int, j: int, k: int = 128) -> int:
    """Return the exclusive or of x rotated right by i, by j and, if k is given, by k."""
    x |= x << 64
    return (x >> i ^ x >> j ^ x >> k) & _WORD


def _fractions(degree: int, count: int) -> "Iterator[int]":
    """Yield the first 64 fractional bits of the roots, square (2) or cube (3) by ``degree``, of the first ``count``
    primes: SHA-512's constants without a table.

    They are computed one at a time: on a board, all constants and the primes would take 6 KB in many pieces.
    """
    n = 1
    while count:
        n += 1
        divisor = 2
        while n % divisor:
            divisor += 1
        if divisor == n:
            count -= 1
            # The root is computed by Newton's method on integers, which starts above it and decreases.
            power = n << 64 * degree
            root = 8 << 64
            while True:
                step = ((degree - 1) * root + power // root ** (degree - 1)) // degree
                if step >= root:
                    break
                root = step
            yield root & _WORD
