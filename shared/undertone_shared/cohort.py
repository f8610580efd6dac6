"""Who reports for the threshold in which slot: a public rule that device and aggregator compute alike."""

import hashlib
import struct

SEED_BYTES = 16
WHOLE = 1 << 24


def in_cohort(seed: bytes, share: int, slot: int, device: str) -> bool:
    """Whether (device, slot) belongs to the threshold cohort of a share of ``share / 2^24``.

    int.from_bytes(sha256(seed || slot as u32 big-endian || device name)[:3], "big") < share.
    """
    digest = hashlib.sha256(seed + struct.pack(">I", slot) + device.encode()).digest()
    return (digest[0] << 16 | digest[1] << 8 | digest[2]) < share
