"""The ledger's bytes: frozen, and harmless when they are anything else."""

import hashlib

from hypothesis import given, settings
from hypothesis import strategies as st
from rig import Memory

from undertone_device.ledger import FILE, Ledger

# A ledger of version 1 with two reports; whoever changes it changes what devices in the field have on flash.
FROZEN = bytes.fromhex(
    "55544c31"  # UTL1
    "6ae6d800"  # spent_until 1793513472
    "6ae58680"  # last_epoch
    "00005117"  # period
    "0000000b"  # used
    "00005117"  # day
    "0002"  # boots
    "0002"  # reports
    "a1b2c3d4"  # current campaign
    "00000000"  # next campaign
    "0101a1b2c3d4000f2f0a0000002a0000"
    "0101a1b2c3d4000f2f0b000000070000"
)
FROZEN += hashlib.sha256(FROZEN).digest()[:8]


def load(data):
    storage = Memory()
    storage.files[FILE] = data
    return storage, Ledger(storage, 96)


def test_the_frozen_bytes_are_read_and_written_back_alike():
    storage, ledger = load(FROZEN)
    assert not ledger.lost
    assert (ledger.spent_until, ledger.last_epoch) == (0x6AE6D800, 0x6AE58680)
    assert (ledger.period, ledger.used, ledger.day, ledger.boots) == (0x5117, 11, 0x5117, 2)
    assert (ledger.current, ledger.next) == (bytes.fromhex("a1b2c3d4"), bytes(4))
    assert [ledger.outbox[i].hex() for i in range(2)] == [FROZEN[36:52].hex(), FROZEN[52:68].hex()]
    ledger.write(ledger.spent_until, ledger.used)
    assert storage.files[FILE] == FROZEN


@settings(max_examples=3000, deadline=None)
@given(st.binary(max_size=200))
def test_any_other_bytes_are_a_lost_ledger(data):
    _, ledger = load(data)
    assert ledger.lost
    assert ledger.spent_until == 0
    assert len(ledger.outbox) == 0


def test_any_flipped_bit_and_any_torn_end_is_a_lost_ledger():
    for position in range(len(FROZEN)):
        assert load(FROZEN[:position])[1].lost
        for bit in range(8):
            data = bytearray(FROZEN)
            data[position] ^= 1 << bit
            assert load(bytes(data))[1].lost
