"""Ed25519 verification agrees with OpenSSL's and SHA-512 with hashlib's, within the heap of a board."""

import hashlib
import random

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from support import micropython as mp
from undertone_shared import ed25519

# This is 28 KB on a board, since the words of the 64-bit unix port are twice as long.
HEAP = "56k"
PROGRAM = """
import gc
from undertone_shared import ed25519
key = bytes.fromhex("%s")
signature = bytes.fromhex("%s")
gc.collect()
print("loaded", gc.mem_alloc())
print(ed25519.verify(key, bytes(range(32)), signature), ed25519.verify(key, bytes(32), signature))
"""


def openssl(key: bytes, message: bytes, signature: bytes) -> bool:
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


@pytest.mark.slow
def test_the_verification_agrees_with_openssl():
    chance = random.Random(1)
    for _ in range(100):
        private = Ed25519PrivateKey.from_private_bytes(chance.randbytes(32))
        key, message = private.public_key().public_bytes_raw(), chance.randbytes(chance.randrange(48))
        signature = private.sign(message)
        assert [ed25519.verify(key, message, signature), openssl(key, message, signature)] == [True, True]
        damaged = bytearray(key + signature)
        damaged[chance.randrange(96)] ^= 1 << chance.randrange(8)
        key, signature = bytes(damaged[:32]), bytes(damaged[32:])
        assert [ed25519.verify(key, message, signature), openssl(key, message, signature)] == [False, False]


def test_the_sha512_of_boards_agrees_with_hashlib():
    for size in range(112):
        data = bytes(range(size))
        assert ed25519._sha512(data) == hashlib.sha512(data).digest()


def test_a_verification_runs_within_28_kb(tmp_path, micropython):
    mp.compile_mpy(mp.REPO / "shared/undertone_shared", tmp_path, optimise=3)
    private = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
    key, signature = private.public_key().public_bytes_raw(), private.sign(bytes(range(32)))
    result = micropython(PROGRAM % (key.hex(), signature.hex()), paths=[tmp_path], heap=HEAP)
    assert result.stdout.splitlines()[1:] == ["True False"], result.stdout + result.stderr
