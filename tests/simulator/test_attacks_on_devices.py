"""A server, broker or clock that lies, over a real broker. The devices refuse, give the reason in a word, and go on."""

import asyncio
import base64
import json

import pytest

from support.designed import frozen_tables
from support.lies import DAY, MINUTES, POLICY, SPEED, YEAR, Server, begin, campaign, reporting
from support.refusal import refused
from support.stepped import PatientClock
from support.waiting import wait_async
from undertone_aggregator.design import hybrid, square_wave
from undertone_aggregator.threshold import first_edges
from undertone_shared.campaign import LARGEST_BODY, Campaign, write_canonical
from undertone_shared.mechanism import Hybrid, WindowMechanism
from undertone_shared.off_board.intake import unpack
from undertone_shared.off_board.issue import pack
from undertone_shared.scalar import Cohort
from undertone_shared.table import TableMechanism
from undertone_simulator.wire.clock import Clock
from undertone_simulator.wire.ledger import read_ledgers


def table(*rows):
    packed = [b"".join(weight.to_bytes(3, "big") for weight in row) for row in rows]
    return TableMechanism(8, packed, (0, 1000), 0)


def tampered(epoch, last):
    """(reason, body) of campaigns with a designed table in which something was changed."""
    table = next(table for epsilon, _, table in frozen_tables() if epsilon == "2")
    theta = 700
    honest = campaign(epoch, last, **reporting(table, theta)).body
    fields = json.loads(honest)

    def body(**changes):
        mechanism = {**fields["rule"]["mechanism"], **changes}
        pieces = []
        write_canonical({**fields, "rule": {**fields["rule"], "mechanism": mechanism}}, pieces.append)
        return b"".join(pieces)

    def rows(*moves):
        """The table's rows with some weights of row 9 changed. A change is (column, by how much)."""
        weights = table.weights(9)
        for column, by in moves:
            weights[column] += by
        row = base64.b64encode(b"".join(weight.to_bytes(3, "big") for weight in weights)).decode()
        given = fields["rule"]["mechanism"]["rows"]
        return [*given[:9], row, *given[10:]]

    values = fields["rule"]["mechanism"]["values"]
    likely = sorted(range(table.symbols), key=table.weights(9).__getitem__)
    return [
        ("invalid", body(rows=rows((3, 1)))),
        ("epsilon", body(rows=rows((likely[0], 500_000), (likely[-1], -500_000)))),
        ("invalid", body(rows=rows((likely[0], -table.weights(9)[likely[0]]), (likely[-1], 5)))),
        ("invalid", body(values=[*values[:5], values[4], *values[6:]])),
        ("invalid", body(values=[1, *values[1:]])),
        ("invalid", honest.replace(b"[[0,0,700]]", b"[[0,0,700],[7,0,9000000]]")),
        ("invalid", body(bits=table.bits - 1)),
        ("invalid", body(rows=fields["rule"]["mechanism"]["rows"][:-1])),
    ]


def lies(now, good):
    """(reason, message) of campaigns that a device must refuse when `good` is in force at `now`."""
    epoch, last = good.epoch + 30 * 60, good.last_slot
    strong = Cohort(square_wave(4, first_edges(10000)))
    leaky = Hybrid(1, WindowMechanism(4000, 1, 1, 1, 1), WindowMechanism(7, 1, 10, 1, 16, None, 2))
    garbled = table((128, 128), (100, 156))
    text = campaign(epoch, last, **reporting(garbled)).body
    return [
        ("epsilon", pack(campaign(epoch, last, cohort=strong), now)),
        ("epsilon", pack(campaign(epoch, last, **reporting(hybrid(4))), now)),
        # The piecewise part alone would be accepted.
        ("epsilon", pack(campaign(epoch, last, **reporting(leaky)), now)),
        ("epsilon", pack(campaign(epoch, last, **reporting(table((255, 1), (1, 255)))), now)),
        # The sums of the table's rows are not what the table claims.
        ("invalid", pack_body(text.replace(b'"bits":8', b'"bits":9'), now)),
        *((reason, pack_body(body, now)) for reason, body in tampered(epoch, last)),
        ("theta", pack(campaign(epoch, last, **reporting(hybrid(2), theta=99)), now)),
        ("theta", pack(campaign(epoch, last, **reporting(hybrid(2), theta=5001)), now)),
        ("slot_seconds", pack(campaign(epoch, 2 * last, slot_seconds=30), now)),
        ("sensor", pack(campaign(epoch, last, sensor="gas"), now)),
        ("measure", pack(campaign(epoch, last, measure="max"), now)),
        ("duration", pack(campaign(epoch, last + 100_000), now)),
        ("sensor_busy", pack(campaign(epoch, last, name="other"), now)),
        ("epoch_rollback", pack(campaign(good.epoch - 600, last), now)),
        ("epoch_too_soon", pack(campaign(good.epoch + 60, last), now)),
        ("epoch_ahead", pack(campaign(good.epoch + 8 * DAY, last + 8 * 1440 + 100), now)),
        ("ended", pack(campaign(good.epoch - 7200, good.first_slot - 60), now)),
        # The date in the message is twenty years ahead of the clock, or two days behind.
        ("clock", pack(campaign(epoch, last), now + 20 * YEAR)),
        ("clock", pack(campaign(epoch, last), now - 2 * DAY)),
        ("invalid", b""),
        ("invalid", b"UTC2"),
        ("invalid", b"hello" * 10),
        ("invalid", pack(good, now)[:-1]),
        ("invalid", pack_body(b"[" * 1000, now)),
        ("invalid", pack_body(b"{" + b" " * LARGEST_BODY, now)),
    ]


def pack_body(body, now):
    """Make a message of any bytes, as `pack` makes one of a campaign."""
    return b"UTC2" + now.to_bytes(4, "big") + len(body).to_bytes(4, "big") + body + bytes(64)


@pytest.fixture
def stage(make_world):
    """Devices in a world without Undertone's server, and a server that may send anything."""
    world = make_world(2, MINUTES, PatientClock(SPEED), **POLICY)
    server = Server(world)
    yield world, server
    server.close()


def test_lying_campaigns_are_refused_and_the_last_good_one_kept(stage):
    world, server = stage
    fleet = world.fleet()

    async def go():
        stop = asyncio.Event()
        running = asyncio.get_running_loop().create_task(fleet.run(1000, stop))
        good, now = begin(world)
        server.publish(pack(good, now))
        await wait_async(lambda: all(device.reporter.campaign for device in fleet.devices), "accepting the campaign")
        for reason, message in lies(int(world.clock.now()), good):
            before = fleet.refusals[reason]
            server.publish(message)
            await wait_async(
                lambda r=reason, n=before: fleet.refusals[r] == n + 2, f"refusing for {reason}: {message[:60]}"
            )
        # The message is longer than a session reads. The device skips it, and the connection stays open.
        server.publish(b"x" * 60_000)
        drawn = [device.drawn for device in fleet.devices]
        await wait_async(
            lambda: all(device.drawn > n + 2 for device, n in zip(fleet.devices, drawn, strict=True)), "going on"
        )
        assert [device.reporter.campaign.fingerprint for device in fleet.devices] == [good.fingerprint] * 2
        assert all(device.reporter.following is None for device in fleet.devices)
        assert all(device.connections == 1 for device in fleet.devices)
        # The good campaign with a date in the far future, with which no clock agrees. The date is not accepted.
        server.publish(pack(good, int(world.clock.now()) + 20 * YEAR))
        since = [device.drawn for device in fleet.devices]
        await wait_async(
            lambda: all(device.drawn > n + 2 for device, n in zip(fleet.devices, since, strict=True)), "going on"
        )
        assert all(device.reporter.paused is None for device in fleet.devices)
        stop.set()
        await running
        return good

    good = asyncio.run(go())
    fleet.wire.ledger.close()
    sent = read_ledgers([world.ledger_path]).sent
    reports = [unpack(report) for _, report in sent]
    assert {report.fingerprint for report in reports} == {good.fingerprint}
    assert len({(device, unpack(report).slot) for device, report in sent}) == len(sent)


class LyingClock(Clock):
    """Unix time that somebody else sets. The ticks are those of the machine."""

    def __init__(self):
        super().__init__()
        self.offset = 0.0

    def now(self):
        return super().now() + self.offset


def test_a_clock_that_lies_buys_no_draw(make_world):
    clock = LyingClock()
    world = make_world(1, MINUTES, clock, **POLICY)
    server = Server(world)
    fleet = world.fleet()
    device = fleet.devices[0]

    async def at(offset):
        """Set the clock, and let the device look at it."""
        clock.offset = offset
        device.tick(int(clock.now()) // 60)
        await asyncio.sleep(0.01)
        return device.reporter.paused

    async def go():
        device.start()
        good, now = begin(world)
        server.publish(pack(good, now))
        await wait_async(lambda: device.reporter.campaign, "accepting the campaign")
        # In each step, a slot of a minute passes by the clock, but only some 10 ms by the ticks. So after the first
        # draw, the ticks forbid the next ones.
        start = good.epoch - clock.now() + 5
        paused = [await at(start + 60 * i) for i in range(8)]
        assert device.drawn == 1
        assert paused[3:] == ["rate"] * 5
        spent = device.reporter.ledger.spent_until
        for jump in (100 * YEAR, 2 * DAY, -2 * DAY):
            device.reporter.guard._drew_at = None  # as after a boot, when the rate limit does not know the last draw
            for i in range(3):
                paused = await at(start + jump + 60 * i)
            assert paused == "clock"
        # The clock goes back within the day. It shows slots again for which reports were drawn already.
        for i in range(4):
            paused = await at(start - 60 + 60 * i) if i < 3 else paused
        assert paused in ("spent", "waiting", "rate")
        assert device.drawn == 1
        assert device.reporter.ledger.spent_until == spent
        device.close()

    try:
        asyncio.run(go())
    finally:
        server.close()
        fleet.wire.ledger.close()


def test_an_aggregator_that_asks_for_too_much_gets_nothing(make_world):
    world = make_world(3, MINUTES.replace("epsilon = 2", "epsilon = 4"), PatientClock(SPEED), cap=[2721, 1001])
    world.start_aggregator()
    fleet = world.fleet()

    async def go():
        stop = asyncio.Event()
        running = asyncio.get_running_loop().create_task(fleet.run(1000, stop))
        await wait_async(lambda: fleet.refusals["epsilon"] >= 3, "refusing")
        # In the next three slots the devices would report.
        until = world.clock.now() + 3 * 60
        await wait_async(lambda: world.clock.now() >= until, "three slots")
        stop.set()
        await running

    asyncio.run(go())
    fleet.wire.ledger.close()
    assert [device.drawn for device in fleet.devices] == [0, 0, 0]
    accounts = world.accounts()
    assert (accounts.sent, accounts.received) == (0, 0)


def test_a_campaign_is_rejected_before_it_is_published_if_its_integers_do_not_fit():
    with refused("rule.ranges", 20000, 10000):
        campaign(1795000020, 30000000, **reporting(hybrid(2), theta=20000))
    assert isinstance(campaign(1795000020, 30000000), Campaign)
