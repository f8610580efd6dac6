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
    "00000017"  # rho_period
    "00009301"  # rho
    "00000003"  # window
    "0011"  # reports
    "0002"  # chains
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
    assert [ledger.outbox[i].hex() for i in range(2)] == [FROZEN[52:68].hex(), FROZEN[68:84].hex()]
    assert (ledger.rho_period, ledger.rho) == (0x17, 0x9301)
    assert (ledger.window, ledger.reports, ledger.chains) == (3, 17, 2)
    ledger.write(ledger.spent_until, ledger.used)
    assert storage.files[FILE] == FROZEN


def test_reserved_reports_count_as_drawn_in_the_streams_window():
    storage, ledger = load(FROZEN)
    ledger.write(ledger.spent_until + 3600, ledger.used + 5)
    again = load(storage.files[FILE])[1]
    assert (again.reports, again.chains) == (22, 2)


def test_reports_of_several_dimensions_come_back_whole():
    storage = Memory()
    ledger = Ledger(storage, 4, 24)
    wide = bytes.fromhex("0102a1b2c3d4000f2f0a0000002a000100000007fffffff9")
    ledger.outbox.append(wide)
    ledger.outbox.append(wide[:1] + b"\1" + wide[2:14] + b"\0\0")
    ledger.write(1, 1)
    outbox = Ledger(storage, 4, 24).outbox
    assert [len(outbox[i]) for i in range(2)] == [24, 16]
    assert outbox[0] == wide
    assert outbox.remove(outbox[1])
    assert outbox.remove(wide)
    assert Ledger(storage, 4).lost


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
