"""Hand-overs: who may send a device to which server, and what the device does when nobody answers there."""

import json

from fake_broker import FakeBroker
from rig import DAY, SLOT, START, Device, make_campaign, make_config

from undertone_device.core import handover
from undertone_device.core.ledger import Ledger
from undertone_device.core.units import epsilon_units
from undertone_device.mqtt.client import Client, Platform
from undertone_device.mqtt.session_transport import SessionTransport
from undertone_shared.ed25519 import verify
from undertone_shared.errors import Invalid, Refused
from undertone_shared.handover import device_key
from undertone_shared.off_board import intake, issue

CONFIG = "undertone/v2/load/config"
NEXT = "undertone/v2/heat/config"
OLD, NEW = ("old.example", 8883), ("new.example", 8883)
# The key of the policy's signer. `check` replaces the verification, which has its own tests.
KEY = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"
GOOD = b"\x01" * 64
# The fingerprint of what the household has agreed to.
AGREED = "0123456789abcdef" * 2
HEAT = {"campaigns": ["heat"], "agreed": [AGREED]}


def packed(everybody=None, devices=None, number=1, campaign="load", signature=GOOD):
    keyed = {device_key(campaign, name): entry for name, entry in (devices or {}).items()}
    fields = {"all": everybody or {}, "campaign": campaign, "devices": keyed, "number": number}
    return issue.pack_handover(fields, lambda digest: signature)


class Network:
    """Brokers by their address. Only those in ``reachable`` answer."""

    def __init__(self, *reachable):
        self.brokers = {place: FakeBroker() for place in (OLD, NEW)}
        self.reachable = set(reachable)
        self.tried = []
        self.places = [OLD]

    def connect(self):
        place = self.places[0]
        self.tried.append(place)
        if place not in self.reachable:
            raise OSError(111)
        return self.brokers[place].open()


class Rig:
    def __init__(self, *reachable, handover=True, **policy):
        self.network = Network(*(reachable or (OLD, NEW)))
        self.device = device = Device(
            now=START - SLOT, handover=handover, signers=[KEY], **dict({"agreed": AGREED}, **policy)
        )
        device.policy.check_signature = check
        self.transport = SessionTransport(
            self.network.connect, device.ticks, "meter-1", "meter-1", "secret", 60, self.network.places
        )
        platform = Platform(lambda: device.now, device.ticks, self.idle)
        self.client = Client(device.reporter, self.transport, make_config(), platform)

    def idle(self, milliseconds):
        self.device.ticks.now += milliseconds

    def broadcast(self, place, trailer=b"", topic=CONFIG, campaign=None):
        broker = self.network.brokers[place]
        broker.retained[topic] = issue.pack(campaign or make_campaign(), self.device.now, lambda digest: GOOD, trailer)
        if self.client.online and self.transport.places[0] == place:
            broker.send(topic, broker.retained[topic])

    def steps(self, count=8):
        for _ in range(count):
            self.client.step(0)

    def settle(self):
        self.steps()
        for _ in range(2000):
            self.client.step(0)
            if self.client.online:
                break
            self.device.ticks.now += 1000
        self.steps()


def check(digest, signature, alive=None):
    if signature != GOOD:
        raise Refused("signature", "none of the policy's signers signed it")


def online(*reachable, **policy):
    rig = Rig(*reachable, **policy)
    rig.broadcast(OLD)
    rig.broadcast(NEW)
    rig.steps()
    assert rig.client.online
    return rig


def test_a_device_goes_to_the_new_address_and_stays_there():
    rig = online()
    rig.broadcast(OLD, packed({"host": NEW[0], "port": NEW[1]}))
    rig.settle()
    assert rig.network.tried == [OLD, NEW]
    assert rig.client.online
    kept = handover.load(rig.device.storage)
    assert kept == {"host": NEW[0], "port": NEW[1], "number": 1}
    rig.broadcast(NEW, packed({"host": NEW[0], "port": NEW[1]}))
    rig.settle()
    assert rig.network.tried == [OLD, NEW], "the same hand-over there changes nothing"
    rig.device.pass_time(2 * SLOT)
    rig.steps()
    assert len(rig.network.brokers[OLD].published) == 0


def test_where_nobody_answers_the_device_comes_back_and_tries_again_later():
    rig = online(OLD)
    rig.broadcast(OLD, packed({"host": NEW[0], "port": NEW[1]}))
    rig.settle()
    assert rig.network.tried == [OLD, NEW, OLD]
    assert rig.client.online
    rig.network.reachable = {NEW}
    rig.network.brokers[OLD].drop()
    rig.settle()
    assert rig.network.tried[-1] == NEW
    assert rig.client.online


def test_a_broker_that_does_not_let_the_device_in_is_no_new_home():
    rig = online()
    rig.network.brokers[NEW].refuse = 5
    rig.broadcast(OLD, packed({"host": NEW[0], "port": NEW[1]}))
    rig.settle()
    assert rig.network.tried == [OLD, NEW, OLD]


def test_who_may_not_send_a_device_elsewhere_does_not():
    for trailer, word, policy in (
        (packed({"host": NEW[0], "port": NEW[1]}, signature=bytes(64)), "signers", True),
        (packed({"host": NEW[0], "port": NEW[1]}, campaign="heat"), "heat", True),
        (b"x" * 65, "JSON", True),
        (b"x", "bytes", True),
        (packed({"host": NEW[0], "port": NEW[1]}), "", False),
    ):
        rig = online(handover=policy)
        rig.broadcast(OLD, trailer)
        rig.steps()
        assert rig.network.tried == [OLD]
        assert word in rig.client.trouble
        assert "handover" not in rig.device.storage.files


def test_an_older_hand_over_is_not_obeyed_again():
    rig = online()
    rig.broadcast(OLD, packed({"host": NEW[0], "port": NEW[1]}, number=5))
    rig.settle()
    rig.broadcast(NEW, packed({"host": OLD[0], "port": OLD[1]}, number=4))
    rig.settle()
    assert rig.network.tried == [OLD, NEW]
    rig.broadcast(NEW, packed({"host": OLD[0], "port": OLD[1]}, number=6))
    rig.settle()
    assert rig.network.tried == [OLD, NEW, OLD]


def test_only_the_device_that_is_named_goes():
    rig = online()
    rig.broadcast(OLD, packed(devices={"meter-2": {"host": NEW[0], "port": NEW[1]}}, number=1))
    rig.settle()
    assert rig.network.tried == [OLD]
    rig.broadcast(OLD, packed(devices={"meter-1": {"host": NEW[0], "port": NEW[1]}}, number=2))
    rig.settle()
    assert rig.network.tried == [OLD, NEW]


def test_a_number_ahead_of_the_clock_is_refused_and_takes_none_away():
    rig = online(lead_seconds=DAY)
    stolen = rig.device.now + DAY + 1
    rig.broadcast(OLD, packed({"host": NEW[0], "port": NEW[1]}, number=stolen))
    rig.settle()
    assert rig.network.tried == [OLD]
    assert "86400 s" in rig.client.trouble
    rig.broadcast(OLD, packed({"host": NEW[0], "port": NEW[1]}, number=rig.device.now))
    rig.settle()
    assert rig.network.tried == [OLD, NEW], "an honest hand-over is obeyed afterwards"


def test_a_damaged_file_lets_no_older_hand_over_be_obeyed():
    rig = online()
    rig.broadcast(OLD, packed({"host": NEW[0], "port": NEW[1]}, number=5))
    rig.settle()
    reporter = rig.device.reporter
    assert reporter.ledger.handover == Ledger(rig.device.storage, 96).handover == 5
    rig.device.storage.files["handover"] = b"{"
    for number in (4, 5):
        trailer = packed({"host": OLD[0], "port": OLD[1]}, number=number)
        entry = handover.take(trailer, "load", "meter-1", reporter.guard, rig.device.now, None)
        # The newest hand-over may be followed again, but no older one.
        assert (entry is None) == (number == 4), number


def test_nobody_reads_the_names_of_other_devices():
    trailer = packed(devices={"meier-3": {"host": NEW[0], "port": NEW[1]}})
    assert b"meier" not in trailer
    assert device_key("load", "meier-3") != device_key("heat", "meier-3") != device_key("heat", "meier-4")
    try:
        issue.pack_handover({"all": {}, "campaign": "load", "devices": {"meter-1": HEAT}, "number": 1}, lambda _: GOOD)
    except Invalid as wrong:
        assert "0-9a-f" in str(wrong)
    else:
        raise AssertionError("a name was taken")


def test_a_campaign_outside_what_was_agreed_to_is_asked_about_and_not_followed():
    for policy, entry in (
        ({}, {"campaigns": ["heat"]}),
        ({}, {"campaigns": ["heat"], "agreed": ["00" * 16]}),
        ({"agreed": ""}, HEAT),
    ):
        rig = online(**policy)
        heat = make_campaign(name="heat", epoch=START + DAY)
        rig.broadcast(OLD, topic=NEXT, campaign=heat)
        rig.broadcast(OLD, packed(dict({"host": NEW[0], "port": NEW[1]}, **entry)))
        rig.settle()
        kept = handover.load(rig.device.storage)
        assert kept["outside"] == ["heat"]
        assert "campaigns" not in kept
        assert rig.client.config.campaigns == ("load",)
        assert rig.device.reporter.accepted.following is None
        assert rig.network.tried == [OLD, NEW], "the new address is followed all the same"
    # Under the last policy, nothing was agreed to, so a later hand-over is not followed either.
    rig.broadcast(NEW, packed(HEAT, number=7))
    rig.settle()
    assert "outside" in handover.load(rig.device.storage)
    # A later hand-over within what was agreed to is followed, and the history contains it.
    rig = online()
    rig.broadcast(OLD, packed({"campaigns": ["heat"]}))
    rig.broadcast(OLD, packed(HEAT, number=7))
    rig.settle()
    kept = handover.load(rig.device.storage)
    assert (kept["campaigns"], kept["history"], "outside" in kept) == (["heat"], [[7, ["heat"]]], False)


def test_a_device_follows_to_another_campaign_which_may_begin_before_the_old_one_ends():
    rig = online()
    heat = make_campaign(name="heat", epoch=START + DAY)
    rig.broadcast(OLD, topic=NEXT, campaign=heat)
    rig.broadcast(OLD, packed(HEAT))
    rig.settle()
    reporter = rig.device.reporter
    assert (reporter.campaign.name, reporter.accepted.following.name) == ("load", "heat")
    for _ in range(50):
        rig.device.pass_time(SLOT)
        rig.broadcast(OLD, topic=NEXT, campaign=heat)
        rig.steps()
    assert reporter.campaign.name == "heat"
    reports = [
        (topic.split("/")[2], intake.unpack(report).slot) for _, _, topic, report in rig.network.brokers[OLD].published
    ]
    slots = [slot for _, slot in reports]
    assert slots == sorted(set(slots)), "no slot is drawn twice"
    edge = (START + DAY) // SLOT
    assert {name for name, slot in reports if slot < edge} == {"load"}
    assert {name for name, slot in reports if slot >= edge} == {"heat"}
    # The old campaign has another epoch, which the device refuses now.
    rig.broadcast(OLD, campaign=make_campaign(epoch=START + 3 * DAY))
    rig.steps()
    assert reporter.refusals == {"sensor_busy": 1}


def test_what_a_device_may_spend_in_its_life_counts_over_both_campaigns():
    spent = []
    for reports in (0, 55):
        rig = Rig(lifetime=reports * epsilon_units(2, 1))
        rig.broadcast(NEW)
        rig.broadcast(OLD, topic=NEXT, campaign=make_campaign(name="heat", epoch=START + DAY))
        rig.broadcast(OLD, packed(HEAT))
        for _ in range(70):
            rig.device.pass_time(SLOT)
            rig.steps()
        names = [topic.split("/")[2] for _, _, topic, _ in rig.network.brokers[OLD].published]
        assert rig.device.reporter.campaign.name == "heat"
        spent.append((names.count("load"), names.count("heat")))
    whole, limited = spent
    assert sum(limited) == 55 < sum(whole)
    assert limited[0] == whole[0] > 0, "the first campaign's reports count, too"


def test_without_a_hand_over_the_accepted_campaign_holds_the_sensor():
    rig = online()
    try:
        heat = issue.pack(make_campaign(name="heat", epoch=START + DAY), rig.device.now, lambda digest: GOOD)
        rig.device.reporter.accept(heat, rig.device.now)
    except Refused as refused:
        assert refused.reason == "sensor_busy"
    else:
        raise AssertionError("it was accepted")


def test_what_is_kept_survives_and_what_is_damaged_is_as_if_it_were_not_there():
    rig = online()
    rig.broadcast(OLD, packed({"host": NEW[0], "port": NEW[1], "campaigns": ["heat"], "agreed": [AGREED]}))
    rig.settle()
    storage = rig.device.storage
    entry = handover.load(storage)
    assert handover.places(entry, OLD) == [NEW, OLD]
    assert handover.campaigns(entry, ("load",)) == ("load", "heat")
    for text in ("", "{", "[]", '{"number": 3, "host": "x"}', '{"host": "x", "port": 1}'):
        storage.files["handover"] = text.encode()
        assert handover.load(storage) == {}
    assert handover.places({}, OLD) == [OLD]


def test_a_hand_over_that_is_wrong_is_named():
    for fields, word in (
        ({"host": "x"}, "port"),
        ({"port": 1}, "host"),
        ({"host": "x", "port": 0}, "port"),
        ({"campaigns": []}, "campaigns"),
        ({"campaigns": ["a"] * 5}, "campaigns"),
        ({"colour": 1}, "colour"),
        ({"agreed": [AGREED]}, "campaigns"),
        ({"campaigns": ["heat"], "agreed": []}, "agreed"),
        ({"campaigns": ["heat"], "agreed": [AGREED] * 17}, "agreed"),
        ({"campaigns": ["heat"], "agreed": ["g" * 32]}, "0-9a-f"),
    ):
        try:
            packed(fields)
        except Invalid as wrong:
            assert word in str(wrong), wrong
        else:
            raise AssertionError(fields)


def test_the_signature_covers_the_body_and_is_not_a_campaigns():
    body, signature = handover.handover.split(packed())
    assert json.loads(body)["number"] == 1
    assert signature == GOOD
    assert not verify(bytes.fromhex(KEY), handover.handover.digest_of(body), signature)
