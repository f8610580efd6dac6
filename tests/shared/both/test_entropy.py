"""The source of bytes and ``below``: exact probabilities, the contract, the health test, and what stays in memory."""

import os

from undertone_shared import entropy as module
from undertone_shared.entropy import BUFFER_BYTES, REPETITION_CUTOFF, Entropy, EntropyError
from undertone_shared.errors import Invalid


def stream(data):
    """A source that gives these bytes, and then the bytes 1 to 251 again and again."""
    rest = [bytes(data)]

    def source(n):
        while len(rest[0]) < n:
            rest[0] += bytes(range(1, 252))
        taken = rest[0][:n]
        rest[0] = rest[0][n:]
        return taken

    return source


def failure(kind, function, *arguments):
    try:
        function(*arguments)
    except kind as error:
        return str(error)
    raise AssertionError("no failure")


def words(*values):
    return b"".join(bytes((v & 255, v >> 8 & 255, v >> 16 & 255, v >> 24 & 255)) for v in values)


def below_after(n, *values):
    entropy = Entropy(stream(words(*values)))
    entropy.refill()
    return entropy.below(n)


def test_below_masks_and_rejects():
    assert below_after(5, 0xFFFFFFF8 | 4) == 4
    assert below_after(5, 5, 6, 0xFFFFFFFF, 3) == 3
    assert below_after(1, 0xDEADBEEF) == 0
    assert below_after(1 << 30, 0xFFFFFFFF) == (1 << 30) - 1
    assert below_after((1 << 30) - 1, 0xFFFFFFFF, 0x40000001) == 1
    assert below_after(65536, 0x12345678) == 0x5678
    assert below_after(1 << 24, 0x12345678) == 0x345678


def test_below_is_uniform_over_all_masked_words():
    for n in (1, 2, 3, 5, 8, 17, 200, 256):
        bits = 0
        while (1 << bits) < n:
            bits += 1
        counts = [0] * n
        for word in range(1 << bits):
            # If the first word is rejected, the second one gives n - 1, and `_next` is 8 instead of 4. The high bits of
            # both are masked off.
            entropy = Entropy(stream(words(0x5AA50000 | word, 0x3CC30000 | n - 1)))
            entropy.refill()
            value = entropy.below(n)
            if entropy._next == 4:
                counts[value] += 1
        assert counts == [1] * n


def test_one_word_even_when_certain():
    entropy = Entropy(stream(words(7, 7, 9)))
    entropy.refill()
    assert entropy.below(1) == 0
    assert entropy.below(1) == 0
    assert entropy.below(16) == 9


def test_used_bytes_are_zeroed():
    entropy = Entropy(stream(words(0xFFFFFFFF, 2)))
    entropy.refill()
    assert entropy.below(3) == 2
    assert bytes(entropy._buffer[:8]) == bytes(8)
    assert entropy._buffer[8] != 0


def test_the_buffer_never_refills_itself():
    entropy = Entropy(stream(b""))
    assert "used up" in failure(EntropyError, entropy.below, 2)
    entropy.refill()
    for _ in range(BUFFER_BYTES // 4):
        entropy.below(2)
    assert "used up" in failure(EntropyError, entropy.below, 2)
    entropy.refill()
    entropy.below(2)


def test_bounds_out_of_range():
    entropy = Entropy(stream(b""))
    for n in (0, -1, (1 << 30) + 1):
        assert failure(Invalid, entropy.below, n) == "n is %d, expected 1 to 2^30" % n


def test_repetition_is_noticed_also_across_refills():
    run = bytes([7]) * (REPETITION_CUTOFF - 1)
    Entropy(stream(bytes([1, 2, 3]) + run)).refill()
    dead = Entropy(stream(bytes([1, 2, 3]) + run + bytes([7])))
    assert "repeated" in failure(EntropyError, dead.refill)
    assert "used up" in failure(EntropyError, dead.below, 2)
    half = REPETITION_CUTOFF // 2
    data = bytearray(i % 251 for i in range(2 * BUFFER_BYTES))
    data[BUFFER_BYTES - half : BUFFER_BYTES + half] = bytes([9]) * (2 * half)
    split = Entropy(stream(data))
    split.refill()
    assert "repeated" in failure(EntropyError, split.refill)
    assert "repeated" in failure(EntropyError, Entropy(bytes).refill)


def test_six_equal_bytes_in_a_row_are_noticed_wherever_they_begin_and_five_are_not():
    for length in (REPETITION_CUTOFF - 1, REPETITION_CUTOFF):
        for begin in range(BUFFER_BYTES - length + 1):
            data = bytearray(i % 2 for i in range(BUFFER_BYTES))
            data[begin : begin + length] = bytes([9]) * length
            entropy = Entropy(stream(data))
            if length < REPETITION_CUTOFF:
                entropy.refill()
            else:
                assert "repeated" in failure(EntropyError, entropy.refill), begin


def test_the_health_test_is_a_count_of_equal_bytes_in_a_row():
    """The health test agrees with a plain count over three buffers, whether a source repeats bytes seldom or often."""
    state = 1
    outcomes = [0, 0]
    for trial in range(120):
        values = 2 + trial % 9
        data = bytearray(3 * BUFFER_BYTES)
        for i in range(len(data)):
            state = (state * 75 + 74) % 65537
            data[i] = state // 7 % values
        if trial % 10 == 9:
            # The first one, two or three buffers have the same byte everywhere.
            data[: BUFFER_BYTES * (1 + trial % 3)] = bytes([5]) * (BUFFER_BYTES * (1 + trial % 3))
        entropy = Entropy(stream(data))
        last, run = -1, 0
        for start in range(0, len(data), BUFFER_BYTES):
            expected = False
            for byte in data[start : start + BUFFER_BYTES]:
                run = run + 1 if byte == last else 1
                last = byte
                expected = expected or run >= REPETITION_CUTOFF
            try:
                entropy.refill()
                failed = False
            except EntropyError:
                failed = True
            assert failed == expected, (trial, start)
            outcomes[failed] += 1
    assert min(outcomes) > 50


def test_short_sources_are_refused():
    assert failure(EntropyError, Entropy(lambda n: b"abc").refill) == "the random source gave 3 bytes, expected 128"


def test_without_urandom_it_does_not_start():
    class Without:
        pass

    try:
        module.os = Without
        assert "no os.urandom" in failure(EntropyError, Entropy)
    finally:
        module.os = os
    Entropy().refill()


def test_the_mask_has_all_bits_below_its_first():
    for bits in range(1, 31):
        # n - 1 has only its highest bit set, and n - 2 has all lower bits set.
        n = (1 << bits - 1) + 1
        assert below_after(n, n - 2) == n - 2, bits


def test_used_words_are_wiped():
    entropy = Entropy(stream(b""))
    entropy.refill()
    assert all(entropy._buffer[4:])
    for _ in range(3):
        entropy.below(1 << 30)
    assert not any(entropy._buffer[:12])
    assert all(entropy._buffer[12:])
