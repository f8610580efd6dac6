"""Signed campaigns over a real broker: the rotation of keys, and attacks with forged campaigns."""

import asyncio
import json

import pytest

from support.lies import DAY, MINUTES, POLICY, SPEED, Server, begin, campaign, reporting
from support.stepped import PatientClock
from support.waiting import wait_async
from undertone_aggregator.design import hybrid
from undertone_aggregator.mqtt.signing import make_key
from undertone_shared.off_board.intake import unpack
from undertone_shared.off_board.issue import pack
from undertone_simulator.wire.ledger import read_ledgers

LAST_SECOND = 0xFFFFFFFF


@pytest.fixture
def old(tmp_path):
    return make_key(tmp_path / "old.key")


@pytest.fixture
def thief(tmp_path):
    """The key of somebody who also knows the server's password at the broker."""
    return make_key(tmp_path / "thief.key")


@pytest.fixture
def stage(make_world, old):
    world = make_world(2, MINUTES, PatientClock(SPEED), signers=[old.public], **POLICY)
    server = Server(world)
    yield world, server
    server.close()


def allow(world, *signers):
    """Give the devices the new policies of their owner."""
    for name in world.names:
        path = world.site.device(name) / "policy.json"
        path.write_text(
            json.dumps(
                {**json.loads(path.read_text(encoding="utf-8")), "signers": [signer.public for signer in signers]}
            ),
            encoding="utf-8",
        )


async def accepted(fleet, fingerprint):
    def all_know():
        known = [(d.reporter.campaign, d.reporter.following) for d in fleet.devices]
        return all(fingerprint in {c.fingerprint for c in pair if c is not None} for pair in known)

    await wait_async(all_know, "accepting the campaign")


async def drawing(fleet, more=2):
    drawn = [device.drawn for device in fleet.devices]
    await wait_async(
        lambda: all(device.drawn > n + more for device, n in zip(fleet.devices, drawn, strict=True)), "reporting"
    )


def play(world, scene):
    """Run a fleet on its storage while the scene lasts; return what the scene returns."""
    fleet = world.fleet(state=world.folder / "state")

    async def go():
        stop = asyncio.Event()
        running = asyncio.get_running_loop().create_task(fleet.run(1000, stop))
        try:
            return await scene(fleet)
        finally:
            stop.set()
            await running

    try:
        return asyncio.run(go())
    finally:
        fleet.wire.ledger.close()
        for device in fleet.devices:
            storage = device.reporter.ledger.storage
            if hasattr(storage, "close"):
                storage.close()


@pytest.mark.waits
def test_a_key_is_rotated_while_devices_report(stage, old, tmp_path):
    world, server = stage
    new = make_key(tmp_path / "new.key")
    good, now = begin(world)

    async def before(fleet):
        server.publish(pack(good, now, old.sign))
        await accepted(fleet, good.fingerprint)
        await drawing(fleet)

    play(world, before)
    allow(world, old, new)
    following = campaign(good.epoch + 3600, good.last_slot + 70, **reporting(hybrid(2)))

    async def side_by_side(fleet):
        await accepted(fleet, good.fingerprint)
        server.publish(pack(good, int(world.clock.now()), new.sign))
        await drawing(fleet)
        server.publish(pack(following, int(world.clock.now()), new.sign))
        await accepted(fleet, following.fingerprint)
        assert not sum(fleet.refusals.values())

    play(world, side_by_side)
    allow(world, new)
    later = campaign(good.epoch + 7200, good.last_slot + 170)

    async def after(fleet):
        await accepted(fleet, following.fingerprint)
        server.publish(pack(following, int(world.clock.now()), new.sign))
        await drawing(fleet)
        server.publish(pack(later, int(world.clock.now()), old.sign))
        await wait_async(lambda: fleet.refusals["signature"] == 2, "refusing the old key")
        await drawing(fleet)

    play(world, after)


@pytest.mark.long
def test_nobody_else_can_stop_a_device(stage, old, thief):
    """The forged campaigns have another θ, another name, or an epoch nearly a week ahead or in 2106.

    They are signed by another key, or have the signature of another message or one of zeros.
    """
    world, server = stage
    good, now = begin(world)

    async def scene(fleet):
        server.publish(pack(good, now, old.sign))
        await accepted(fleet, good.fingerprint)
        lies = [
            campaign(good.epoch + 3600, good.last_slot + 340, **reporting(hybrid(2), theta=4999)),
            campaign(good.epoch + 3600, good.last_slot + 340, name="other"),
            campaign(good.epoch + 7 * DAY - 600, good.last_slot + 7 * 1440 + 40),
            campaign(LAST_SECOND // 60 * 60 - 7200, LAST_SECOND // 60 - 2),
        ]
        for number, lie in enumerate(lies):
            for sign in (thief.sign, lambda digest: old.sign(bytes(32)), lambda digest: bytes(64)):
                refused = fleet.refusals["signature"]
                server.publish(pack(lie, int(world.clock.now()), sign))
                await wait_async(lambda n=refused: fleet.refusals["signature"] == n + 2, f"refusing lie {number}")
        await drawing(fleet)
        soon = int(world.clock.now())
        following = campaign((soon // 60 + 8) * 60, good.last_slot + 70, **reporting(hybrid(2)))
        server.publish(pack(following, soon, old.sign))
        await accepted(fleet, following.fingerprint)
        await wait_async(
            lambda: all(d.reporter.campaign.epoch == following.epoch for d in fleet.devices), "going on", 220
        )
        await drawing(fleet)
        return {good.fingerprint, following.fingerprint}

    honest = play(world, scene)
    sent = read_ledgers([world.ledger_path]).sent
    assert {unpack(report).fingerprint for _, report in sent} == honest


def test_even_the_servers_own_key_burns_no_epochs_beyond_a_day(stage, old):
    world, server = stage
    good, now = begin(world)

    async def scene(fleet):
        server.publish(pack(good, now, old.sign))
        await accepted(fleet, good.fingerprint)
        for ahead in (2 * DAY, 7 * DAY - 600):
            refused = fleet.refusals["epoch_ahead"]
            burnt = campaign(good.epoch + ahead, good.last_slot + ahead // 60 + 40)
            server.publish(pack(burnt, int(world.clock.now()), old.sign))
            await wait_async(lambda n=refused: fleet.refusals["epoch_ahead"] == n + 2, "refusing")
        await drawing(fleet)

    play(world, scene)
