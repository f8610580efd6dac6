"""Signed campaigns: whose signatures a device accepts, when it verifies them, and what a reset of campaigns forgets."""

import gc

from rig import DAY, SLOT, START, Device, make_campaign

from undertone_device.core.reset import forget_campaigns
from undertone_shared import ed25519
from undertone_shared.errors import Invalid, Refused
from undertone_shared.off_board import intake, issue

# The public keys whose secrets are the bytes 0 to 31 and 1 to 32. Each key's signature of the rig's campaign follows,
# and the first key's signature of the same campaign a day later.
OLD = "03a107bff3ce10be1d70dd18e74bc09967e4d6309ba50d5f1ddc8664125531b8"
NEW = "79b5562e8fe654f94078b112e8a98ba7901f853ae695bed7e0e3910bad049664"
BY_OLD = bytes.fromhex(
    "46b0c812f2393f73b58ba7540e596cc564ed67f757b0179ac409d2e4427c1be4"
    "14a0d353ff9ee9ef737ea50e4dd9ad286a790ec722a99be25ff32818946b930a"
)
BY_NEW = bytes.fromhex(
    "7f01a02ec3a6fcf21b073bb31ab92fc226546dbff094f6e3fc9646c1a956fef5"
    "a836e249bae9c1b9851d1c5d4317ac1ad162c6bb252ef6abf487a3fa0f3e7403"
)
LATER_BY_OLD = bytes.fromhex(
    "acc16ac8255b69c2f8e496cdf0ef4084e4893e25ee6e3a2466c62e474517d62c"
    "5bb65efa49169b96c7d4b573920c2914007e3d2c62ccec5c092a923ec2f4c20f"
)


def message(device, signature=BY_OLD, **changes):
    return issue.pack(make_campaign(**changes), device.now, lambda digest: signature)


def signed(*keys, **policy):
    return Device(signers=list(keys), insecure=False, **policy)


def refusal(device, data):
    try:
        device.reporter.accept(data, device.now)
    except Refused as refused:
        return refused.reason
    except Invalid:
        return "invalid"
    raise AssertionError("accepted")


def test_a_signed_campaign_is_accepted_and_reported_under():
    device = signed(OLD)
    assert device.reporter.accept(message(device), device.now)
    device.pass_time(START - device.now)
    device.slot()
    assert device.slot() is not None


def test_who_is_no_signer_is_refused_and_nothing_is_lost():
    device = signed(NEW)
    assert refusal(device, message(device)) == "signature"
    assert refusal(device, message(device, bytes(64))) == "signature"
    assert device.reporter.campaign is None
    assert device.reporter.refusals == {"signature": 2}
    assert device.reporter.accept(message(device, BY_NEW), device.now)


def test_one_bit_changed_anywhere_is_refused():
    device = signed(OLD)
    good = message(device)
    for at in range(len(good)):
        # The date in bytes 4 to 7 is unsigned: the device compares it with its clock. Verification is slow, so only
        # every 13th byte is changed.
        if 4 <= at < 8 or at % 13:
            continue
        changed = bytearray(good)
        changed[at] ^= 1 << at % 8
        assert refusal(device, bytes(changed)) in ("signature", "invalid"), at
    for cut in (good[:-1], good[:-64], good + b"\0", b""):
        assert refusal(device, cut) == "invalid"
    assert device.reporter.accept(good, device.now)


def test_old_and_new_key_stand_side_by_side():
    for signature in (BY_OLD, BY_NEW):
        device = signed(OLD, NEW)
        assert device.reporter.accept(message(device, signature), device.now)
    device = signed(NEW)
    assert refusal(device, message(device, BY_OLD)) == "signature"


def test_a_body_is_verified_once():
    device = signed(OLD)
    original, calls = ed25519.verify, []

    def counted(*arguments):
        calls.append(arguments)
        return original(*arguments)

    ed25519.verify = counted
    try:
        device.reporter.accept(message(device), device.now)
        assert len(calls) == 1
        for _ in range(3):
            # The device knows the body, so it does not verify the message again, even with another signature.
            assert device.reporter.accept(message(device, bytes(64)), device.now) is False
            device.boot()
        assert len(calls) == 1
    finally:
        ed25519.verify = original


def test_a_watchdog_is_fed_while_a_signature_is_verified():
    device = signed(OLD)
    fed = []
    device.reporter.accept(message(device), device.now, "load", lambda: fed.append(1))
    assert len(fed) >= 30


def test_a_board_collects_no_garbage_at_every_step_of_a_verification():
    if not hasattr(gc, "threshold"):
        # CPython has no gc.threshold.
        return
    before = gc.threshold()
    gc.threshold(4096)
    try:
        device = signed(OLD)
        during = []
        for data in (message(device), message(device, bytes(64))):
            try:
                device.reporter.accept(data, device.now, "load", lambda: during.append(gc.threshold()))
            except Refused:
                pass
            assert gc.threshold() == 4096
        assert during.count(-1) == len(during) >= 30
    finally:
        gc.threshold(before)


def test_an_old_epoch_is_not_played_again():
    device = signed(OLD)
    device.reporter.accept(message(device), device.now)
    device.pass_time(START + DAY - SLOT - device.now)
    device.reporter.accept(message(device, LATER_BY_OLD, epoch=START + DAY), device.now)
    device.pass_time(2 * SLOT)
    device.slot()
    assert device.reporter.campaign.epoch == START + DAY
    assert refusal(device, message(device)) == "epoch_rollback"


def test_no_signers_are_for_demonstrations_alone():
    try:
        Device(insecure=False)
    except Invalid as error:
        assert "signers is ()" in str(error)
    else:
        raise AssertionError("accepted")
    device = Device()
    assert device.reporter.accept(message(device, bytes(64)), device.now)


def test_an_epoch_far_ahead_is_refused_whoever_signed_it():
    device = signed(OLD, lead_seconds=599)
    assert refusal(device, message(device)) == "epoch_ahead"
    device = signed(OLD, lead_seconds=600)
    assert device.reporter.accept(message(device), device.now)


def test_reset_campaign_forgets_campaigns_and_keeps_what_was_spent():
    device = signed(OLD)
    device.reporter.accept(message(device), device.now)
    device.pass_time(START - device.now)
    device.slot()
    device.slot()
    device.slot()
    ledger = device.reporter.ledger
    before = (ledger.spent_until, ledger.sequence, ledger.ever, bytes(ledger.sums.buffer[20:]))
    assert before[1] == 2
    forget_campaigns(device.storage, device.policy, device.now)
    device.boot()
    assert device.reporter.campaign is None
    ledger = device.reporter.ledger
    assert (ledger.spent_until, ledger.sequence, ledger.ever, bytes(ledger.sums.buffer[20:])) == before
    assert len(device.reporter.outbox) == 2
    # The device accepts the same campaign again and goes on counting. The first slot after a boot is not reported.
    assert device.reporter.accept(message(device), device.now)
    assert device.slot() is None
    assert intake.unpack(device.slot()).sequence == 3
