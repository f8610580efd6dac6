"""Ed25519 verification: the vectors of RFC 8032, changes of single bits, and what a strict verifier refuses."""

from undertone_shared import ed25519

# RFC 8032, 7.1, tests 1 to 3: key, message, signature.
VECTORS = (
    (
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
        b"",
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24"
        "655141438e7a100b",
    ),
    (
        "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
        b"\x72",
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aee"
        "b00d291612bb0c00",
    ),
    (
        "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025",
        b"\xaf\x82",
        "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28d"
        "c027beceea1ec40a",
    ),
)
BASE = bytes.fromhex("58" + "66" * 31)
IDENTITY = b"\x01" + bytes(31)
# All encodings of points whose order divides 8, canonical or not. The first bit of the last byte is the sign of x.
SMALL = (
    "0100000000000000000000000000000000000000000000000000000000000000",
    "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "0000000000000000000000000000000000000000000000000000000000000080",
    "0000000000000000000000000000000000000000000000000000000000000000",
    "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
    "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa",
    "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
    "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc85",
    "0100000000000000000000000000000000000000000000000000000000000080",
    "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
    "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
    "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
)


def little(number):
    return number.to_bytes(32, "little")


def scalar(first, key, message):
    """k = SHA-512(R, A, M) modulo the order."""
    return int.from_bytes(ed25519._sha512(first + key + message), "little") % ed25519.ORDER


def test_the_vectors_of_the_standard_hold():
    for key, message, signature in VECTORS:
        assert ed25519.verify(bytes.fromhex(key), message, bytes.fromhex(signature))


def test_no_bit_may_change():
    key, message, signature = VECTORS[2]
    given = (bytes.fromhex(key), message, bytes.fromhex(signature))
    for part in range(3):
        # In the message, every bit is changed, and in the other parts every ninth bit.
        for bit in range(8 * len(given[part])) if part == 1 else range(0, 8 * len(given[part]), 9):
            changed = bytearray(given[part])
            changed[bit // 8] ^= 1 << bit % 8
            arguments = list(given)
            arguments[part] = bytes(changed)
            assert not ed25519.verify(*arguments), (part, bit)


def test_lengths_that_do_not_fit_are_refused():
    key, message, signature = [x if isinstance(x, bytes) else bytes.fromhex(x) for x in VECTORS[1]]
    assert not ed25519.verify(key[:31], message, signature)
    assert not ed25519.verify(key + b"\0", message, signature)
    assert not ed25519.verify(key, message, signature[:63])
    assert not ed25519.verify(key, message, signature + b"\0")
    assert not ed25519.verify(key, bytes(48), signature)


def test_s_beyond_the_order_is_refused():
    key, message, signature = [x if isinstance(x, bytes) else bytes.fromhex(x) for x in VECTORS[1]]
    s = int.from_bytes(signature[32:], "little") + ed25519.ORDER
    assert not ed25519.verify(key, message, signature[:32] + little(s))


def test_keys_of_small_order_are_refused():
    # If such a key A were accepted, R = B with S = 1 would pass for each message with [k]A = 0. For the identity,
    # each message is such.
    for message in range(16):
        assert not ed25519.verify(IDENTITY, bytes([message]), BASE + little(1))
    for key in SMALL:
        for message in range(8):
            assert not ed25519.verify(bytes.fromhex(key), bytes([message]), BASE + little(1)), (key, message)


def test_an_r_of_small_order_is_refused():
    # The key is B itself, and its secret is 1. With S = k + r, [S]B = R + [k]A holds for R = [r]B.
    for r, first, valid in ((0, IDENTITY, False), (1, BASE, True)):
        s = (scalar(first, BASE, b"m") + r) % ed25519.ORDER
        assert ed25519.verify(BASE, b"m", first + little(s)) == valid


def test_coordinates_beyond_p_are_refused():
    # y = 1 + p stands for the identity and y = 3 + p for a point of large order. Both points have another, canonical
    # form.
    for y in (ed25519.P + 1, ed25519.P + 3):
        assert not ed25519.verify(little(y), b"", BASE + little(1))


def test_a_watchdog_is_fed_on_the_way():
    key, message, signature = [x if isinstance(x, bytes) else bytes.fromhex(x) for x in VECTORS[0]]
    fed = []
    assert ed25519.verify(key, message, signature, lambda: fed.append(1))
    assert 30 <= len(fed) <= 50


def test_messages_of_up_to_47_bytes_are_verified():
    # The key is B with the secret 1, or -B, whose x has the other sign, with the secret -1. R is B.
    for sign in (1, -1):
        key = little(int.from_bytes(BASE, "little") | (sign < 0) << 255)
        for size in (0, 1, 46, 47):
            message = bytes(range(size))
            s = (1 + sign * scalar(BASE, key, message)) % ed25519.ORDER
            assert ed25519.verify(key, message, BASE + little(s)), (sign, size)
            assert not ed25519.verify(key, message, BASE + little((s + 1) % ed25519.ORDER)), (sign, size)


def test_what_is_decoded_is_on_the_curve():
    p, signs, points = ed25519.P, [], 0
    for y in range(2, 60):
        for sign in (0, 1):
            point = ed25519._decode(little(y | sign << 255))
            if point is None:
                continue
            points += 1
            x, again, z, t = point
            assert (again, z, t) == (y, 1, x * y % p)
            assert (y * y - x * x - 1 - ed25519._D * x * x * y * y) % p == 0
            assert x & 1 == sign
            signs.append(sign)
    # Half of all y have two points, and the others have none.
    assert 2 * sum(signs) == points
    assert 30 < points < 90
