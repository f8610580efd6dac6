"""The client's loop over a broker in memory: what is sent when, what survives, what is refused. No real time passes."""

from array import array

from fake_broker import FakeBroker
from rig import DAY, SHARP, SLOT, START, Counting, Device, make_campaign, make_config, sharp_campaign

from undertone_device.mqtt import client as loop
from undertone_device.mqtt.client import Client, Platform
from undertone_device.mqtt.knocks import PERIOD, Knocks
from undertone_device.mqtt.session_transport import SessionTransport
from undertone_shared.entropy import BUFFER_BYTES, Entropy
from undertone_shared.off_board import intake, issue

CONFIG = "undertone/v2/load/config"


class Rig:
    """A device, its client and its broker. Time passes in ``device.pass_time``; ticks also pass while it waits."""

    def __init__(self, broker=None, device=None, campaign=None, **options):
        self.broker = broker or FakeBroker()
        self.device = device or Device(now=START - SLOT)
        campaign = campaign or make_campaign()
        self.broker.retained[CONFIG] = issue.pack(campaign, self.device.now)
        self.events = []
        self.samples = []
        self.idled = 0
        device = self.device
        transport = SessionTransport(self.broker.open, device.ticks, "meter-1", "meter-1", "secret")
        config, platform = make_config(), Platform(lambda: device.now, device.ticks, self.idle)
        platform.read = self.read
        platform.handed_over = lambda report: self.events.append(("sent", report))
        platform.acknowledged = lambda report: self.events.append(("acked", report))
        for name in options:
            setattr(config if hasattr(config, name) else platform, name, options[name])
        self.client = Client(device.reporter, transport, config, platform)

    def idle(self, milliseconds):
        self.idled += milliseconds
        self.device.ticks.now += milliseconds

    def read(self, now):
        self.samples.append(now)
        return 40

    def steps(self, count=4):
        for _ in range(count):
            self.client.step(0)

    def slot(self, parts=2):
        for _ in range(parts):
            self.device.pass_time(SLOT // parts)
            # The broker's answers to pings are still in the stream. In real time, the client would have read them.
            self.steps()

    def settle(self, milliseconds=700000):
        """Let the client notice what happened, then let ticks pass, a second at a time, until it is online."""
        self.steps()
        while not self.client.online and milliseconds > 0:
            self.client.step(0)
            self.device.ticks.now += 1000
            milliseconds -= 1000
        self.steps()


def online(**options):
    rig = Rig(**options)
    rig.steps()
    assert rig.client.online
    assert rig.device.reporter.campaign is not None
    return rig


def test_connects_subscribes_and_accepts_the_retained_campaign():
    rig = online()
    assert rig.broker.subscribed == [CONFIG]
    assert rig.device.reporter.campaign.fingerprint == make_campaign().fingerprint
    connect = rig.broker.connects[0]
    assert connect[:10] == b"\x00\x04MQTT\x04\xc2\x00\x3c", "clean session, no will, keepalive of 60"


def test_each_slot_is_sampled_once_and_reported_once():
    rig = online()
    for _ in range(5):
        rig.slot()
    # The device booted in the middle of a slot, as far as it knows, so it does not report for this slot.
    slots = [intake.unpack(payload).slot for payload in rig.broker.payloads()]
    assert slots == [START // SLOT + i for i in range(4)]
    assert rig.broker.published[0][2].startswith("undertone/v2/load/")
    assert rig.broker.published[0][2].endswith("/meter-1/report")
    assert len(rig.device.reporter.outbox) == 0
    assert len(rig.samples) == 6
    kinds = [kind for kind, _ in rig.events]
    assert kinds == ["sent", "acked"] * 4


def test_samples_more_often_than_slots():
    rig = online(sample_seconds=600)
    for _ in range(3):
        rig.slot(parts=9)
    assert len(rig.samples) == 1 + 9


def test_a_broken_sensor_reports_the_default_and_does_not_stop_the_loop():
    def broken(now):
        raise OSError(5)

    for default, symbol in ((300, 1), (100, 0)):
        device = Device(now=START - SLOT, cap=SHARP)
        rig = online(device=device, campaign=sharp_campaign(default=default), read=broken)
        for _ in range(3):
            rig.slot()
        assert [intake.unpack(payload).values for payload in rig.broker.payloads()] == [(symbol,)] * 2
        assert rig.client.counts["sensor_failures"] == 4


def test_a_reading_that_takes_longer_than_its_slot_lasts_is_no_reading_of_either():
    rig = None

    def slow(now):
        if rig is None or len(rig.broker.published) != 1:
            return 40
        rig.device.pass_time(SLOT)
        return 900

    taken = []
    rig = online(read=slow)
    observe = rig.device.reporter.observe
    rig.device.reporter.observe = lambda sample, now: (taken.append(sample), observe(sample, now))
    for _ in range(5):
        rig.slot()
    assert rig.client.counts["sensor_failures"] == 1
    assert 900 not in taken and len(taken) > 3


def test_reports_wait_while_the_broker_is_away_and_leave_oldest_first():
    rig = online(in_flight=2)
    rig.slot()
    rig.broker.drop()
    rig.broker.unreachable = True
    for _ in range(5):
        rig.slot()
    assert not rig.client.online
    assert len(rig.device.reporter.outbox) == 5
    rig.broker.unreachable = False
    rig.settle()
    rig.steps(12)
    slots = [intake.unpack(payload).slot for payload in rig.broker.payloads()]
    assert slots == [START // SLOT + i for i in range(5)]
    assert len(rig.device.reporter.outbox) == 0
    assert rig.broker.subscribed == [CONFIG, CONFIG]


def test_nothing_is_looked_up_while_there_is_no_network():
    rig = Rig()
    rig.client.reachable = False
    connect = rig.client.transport.connect
    rig.client.transport.connect = None  # fails if it is called
    rig.steps(20)
    rig.client.transport.connect = connect
    rig.client.reachable = True
    rig.settle()
    assert rig.client.online


def test_no_more_than_the_limit_is_in_flight():
    rig = online(in_flight=3)
    rig.broker.acknowledges = False
    for _ in range(8):
        rig.slot()
    assert len(set(rig.broker.payloads())) == 3


def test_a_report_without_puback_goes_again_with_the_same_bytes_on_the_next_connection():
    rig = online()
    rig.slot()
    rig.broker.acknowledges = False
    rig.slot()
    first = rig.broker.payloads()[-1]
    rig.broker.drop()
    rig.broker.acknowledges = True
    rig.settle()
    assert rig.broker.payloads()[-1] == first
    assert not rig.broker.published[-1][1], "on a new connection, the duplicate flag is not set"
    assert len(rig.device.reporter.outbox) == 0


def test_a_half_open_connection_is_given_up_by_its_silent_ping():
    rig = online()
    rig.broker.silent = True
    stream = rig.broker.stream
    for _ in range(61):
        rig.device.ticks.now += 1000
        rig.client.step(0)
    assert stream.closed
    assert "does not answer" in rig.client.trouble
    rig.broker.silent = False
    rig.settle()
    assert rig.client.online


def test_a_broker_that_never_sends_connack_is_given_up():
    rig = Rig()
    rig.broker.silent = True
    rig.steps()
    for _ in range(32):
        rig.device.ticks.now += 1000
        rig.client.step(0)
    assert "does not answer" in rig.client.trouble
    assert not rig.client.online


def knocking(rig, seconds):
    """The ticks at which the client tries to connect, within ``seconds``."""
    attempts = []
    before = rig.client.transport.open_stream

    def counted():
        attempts.append(rig.device.ticks.now)
        return before()

    rig.client.transport.open_stream = counted
    for _ in range(seconds):
        rig.client.step(0)
        rig.device.ticks.now += 1000
    rig.client.transport.open_stream = before
    return attempts


def gaps(attempts):
    return [attempts[i + 1] - attempts[i] for i in range(len(attempts) - 1)]


def test_a_server_that_is_away_is_tried_each_minute_at_the_devices_own_time():
    rig = online()
    rig.broker.unreachable = True
    rig.broker.drop()
    rig.steps()
    lost = rig.device.ticks.now
    attempts = knocking(rig, 3600)
    first = Knocks("meter-1").lost()
    assert first <= attempts[0] - lost <= first + 1000
    assert set(gaps(attempts)) == {PERIOD}
    rig.broker.unreachable = False
    returned = rig.device.ticks.now
    rig.settle()
    assert rig.client.online
    assert rig.device.ticks.now - returned <= PERIOD + 1000


def test_a_device_that_is_not_let_in_tries_ever_more_seldom():
    rig = online()
    rig.broker.refuse = 3
    rig.broker.drop()
    rig.steps()
    waits = gaps(knocking(rig, 3600))
    wanted = [PERIOD * each + Knocks("meter-1")._hash % (PERIOD * each) for each in (1, 2, 4)]
    for i, wait in enumerate(waits):
        assert wanted[min(i, 2)] <= wait <= wanted[min(i, 2)] + 1000, (i, wait)
    assert 480000 >= waits[-1] > waits[0]
    # The server accepts the client and then is away for a short time. The client waits for only a minute between its
    # attempts.
    rig.broker.refuse = 0
    rig.settle()
    rig.broker.unreachable = True
    rig.broker.drop()
    rig.steps()
    assert set(gaps(knocking(rig, 300))) == {PERIOD}


def test_a_silent_server_counts_as_one_that_does_not_let_the_device_in():
    rig = online()
    rig.broker.silent = True
    rig.broker.drop()
    rig.steps()
    assert gaps(knocking(rig, 3600))[-1] >= 4 * PERIOD


def test_the_time_of_a_connection_is_the_same_whatever_was_read():
    def attempts(reading, entropy):
        rig = online(read=lambda now: reading, device=Device(now=START - SLOT, entropy=Entropy(entropy)))
        rig.slot()
        rig.broker.unreachable = True
        rig.broker.drop()
        rig.steps()
        return knocking(rig, 600)

    other = Counting()
    other.count = 7
    assert attempts(0, Counting()) == attempts(1000, other)


def test_a_refused_connection_backs_off_and_says_why():
    rig = Rig()
    rig.broker.refuse = 5
    began = rig.device.ticks.now
    rig.steps(20)
    assert "not authorised" in rig.client.trouble
    assert not rig.client.online
    assert len(rig.broker.connects) == 1
    # The next attempt is made after one to two periods, and the one after it takes still longer.
    attempts = knocking(rig, 2 * PERIOD // 1000)
    assert len(attempts) == 1 and attempts[0] - began >= PERIOD
    assert len(rig.broker.connects) == 2


def test_a_refused_subscription_is_said_and_reports_go_on():
    rig = Rig()
    rig.broker.denies = True
    rig.steps()
    assert rig.client.online
    assert CONFIG in rig.client.trouble


def test_a_refused_campaign_is_counted_and_the_last_good_one_kept():
    rig = online()
    good = rig.device.reporter.campaign.fingerprint
    greedy = make_campaign(epoch=START + 2 * DAY, default=7)
    for payload in (b"UTC2", bytes(12300), b"{" * 12300, issue.pack(greedy, 7)):
        rig.broker.send(CONFIG, payload)
    rig.broker.send("undertone/v2/other/config", issue.pack(greedy, rig.device.now))
    rig.broker.send(CONFIG, bytes(70000))
    rig.steps(200)
    assert rig.device.reporter.campaign.fingerprint == good
    assert rig.device.reporter.refusals == {"invalid": 3, "clock": 1}
    assert "campaign refused" in rig.client.trouble
    assert rig.client.online


def test_an_empty_retained_message_is_the_end_of_the_campaign_and_no_refusal():
    rig = online()
    good = rig.device.reporter.campaign.fingerprint
    rig.broker.send(CONFIG, b"")
    rig.steps(200)
    assert rig.client.trouble == "the server has ended campaign " + rig.client.config.campaigns[0]
    assert rig.device.reporter.refusals == {}
    assert rig.device.reporter.campaign.fingerprint == good
    assert rig.client.online


def test_publication_is_spread_by_entropy_alone():
    """The same entropy gives the same delay whatever the reading is, and different entropy gives another delay."""
    delays = []
    for reading, seed in ((0, 0), (1000, 0), (500, 7)):
        source = Counting()
        source.count = seed
        device = Device(now=START - SLOT, entropy=Entropy(source))
        rig = online(spread_percent=50, device=device, read=lambda now, value=reading: value)
        rig.slot()
        rig.slot()
        waited = 0
        while not rig.broker.published:
            rig.device.ticks.now += 1000
            waited += 1
            rig.client.step(0)
            assert waited <= SLOT // 2
        delays.append(waited)
    assert delays[0] == delays[1] != delays[2]


def test_one_refill_serves_a_slots_draw_and_its_delay():
    source = Counting()
    entropy = Entropy(source)
    rig = online(spread_percent=50, device=Device(now=START - SLOT, entropy=entropy))
    rig.slot()
    reports = len(rig.device.reporter.outbox)
    before = source.count
    rig.slot()
    assert len(rig.device.reporter.outbox) == reports + 1
    # The source counts blocks of 32 bytes.
    assert source.count - before == BUFFER_BYTES // 32


def test_the_topic_of_reports_is_made_once_for_a_campaign():
    made = []
    report_topic = loop.report_topic

    def counting(*parts):
        made.append(parts)
        return report_topic(*parts)

    loop.report_topic = counting
    try:
        rig = online()
        for _ in range(4):
            rig.slot()
    finally:
        loop.report_topic = report_topic
    assert len(rig.broker.published) >= 3
    assert made == [("undertone/v2", "load", "meter-1")]


def test_older_reports_do_not_wait_for_the_newest_one():
    rig = online(spread_percent=90)
    rig.broker.drop()
    rig.broker.unreachable = True
    for _ in range(4):
        rig.slot()
    rig.broker.unreachable = False
    rig.client._hold = SLOT * 900
    rig.client._held_since = rig.device.ticks()
    rig.settle(400000)
    assert len(rig.broker.published) == 2
    assert len(rig.device.reporter.outbox) == 1


def test_a_device_without_a_clock_asks_ntp_before_anything_else():
    answers = [OSError(110), OSError(110), None]
    asked = []

    def ntp():
        asked.append(1)
        answer = answers.pop(0) if answers else None
        if answer is not None:
            raise answer

    rig = Rig(set_clock=ntp)
    # Without a network, no name is looked up.
    rig.client.reachable = False
    rig.steps(3)
    assert not asked
    rig.client.reachable = True
    rig.steps(1)
    assert rig.client.trouble.startswith("NTP")
    assert not rig.broker.connects
    rig.settle(20000)
    assert rig.client.online
    assert len(asked) == 3
    rig.device.ticks.now += 86400000
    rig.steps()
    assert len(asked) == 4, "asked again after a day"
    answers.append(OSError(110))
    rig.device.ticks.now += 86400000
    rig.steps(1)
    assert len(asked) == 5
    assert rig.client.online, "the device goes on by its own clock"
    assert rig.client.trouble.startswith("NTP")
    rig.device.ticks.now += 2000
    rig.steps(1)
    assert len(asked) == 6, "asked again until the server answers"
    assert rig.client.trouble == ""


def test_a_wake_hears_the_campaign_reports_the_last_slot_and_waits_for_the_acknowledgement():
    device = Device(now=START + SLOT + 5)
    slots = []
    for _ in range(5):
        rig = Rig(device=device)
        report = rig.client.wake(lambda: 7, 30000)
        if report is not None:
            # The report before this one may be sent again, since its acknowledgement came after the last write to
            # flash.
            assert rig.broker.payloads()[-1] == report
            assert len(rig.broker.published) <= 2
            slots.append(intake.unpack(report).slot)
        assert len(device.reporter.outbox) == 0
        assert rig.broker.stream.closed
        device.pass_time(SLOT)
        device.boot(asleep=SLOT * 1000)
    # For a new ledger, all earlier slots count as spent, so the first two wake-ups only begin it.
    assert slots == [START // SLOT + i for i in (2, 3, 4)]


def test_a_wake_whose_sensor_gives_no_integer_reports_the_default():
    for default, symbol in ((300, 1), (100, 0)):
        device = Device(now=START + SLOT + 5, cap=SHARP)
        # The first two wake-ups only begin the ledger.
        for sample in (None, None, 1.5, "3", (3,)):
            rig = Rig(device=device, campaign=sharp_campaign(default=default))
            report = rig.client.wake(lambda sample=sample: sample, 30000)
            assert (report is not None) == (rig.client.counts["sensor_failures"] == 1) == (sample is not None)
            if report is not None:
                assert intake.unpack(report).values == (symbol,)
            device.pass_time(SLOT)
            device.boot(asleep=SLOT * 1000)


def test_a_wake_without_a_broker_gives_up_in_time_and_keeps_its_report():
    device = Device(now=START + 2 * SLOT + 5)
    rig = Rig(device=device)
    rig.broker.unreachable = True
    assert rig.client.wake(lambda: 7, 30000) is None
    assert device.reporter.paused == "no_campaign"
    assert rig.idled <= 31000


def test_leaving_sends_what_waits():
    rig = online(spread_percent=90)
    rig.slot()
    rig.slot()
    rig.client.finish(1000)
    assert len(rig.device.reporter.outbox) == 0
    assert rig.broker.stream.closed


def test_two_messages_are_never_in_memory_at_once():
    rig = online()
    transport = rig.client.transport
    for number in (1, 2, 3):
        rig.broker.send(CONFIG, bytes((number,)) * 3000)
    heard = []
    waits = len(rig.broker.stream.waits)
    while len(heard) < 3:
        events = transport.poll(0)
        # Each message is longer than one read, so no poll returns a second message.
        assert len(events) == 1
        heard += [event[2][0] for event in events]
    assert heard == [1, 2, 3]
    # Bytes that have arrived are read before waiting. The wait would not notice bytes that TLS has already decrypted.
    assert len(rig.broker.stream.waits) == waits
    assert transport.poll(0) == []
    assert len(rig.broker.stream.waits) == waits + 1


def test_a_burst_that_the_sensor_hands_over_is_reduced_by_the_measure():
    for samples, symbol in ((array("H", [150, 100, 50]), 1), (bytes([60, 40]), 0)):
        device = Device(now=START - SLOT, cap=SHARP)
        rig = online(device=device, campaign=sharp_campaign(), read=lambda now, samples=samples: samples)
        for _ in range(3):
            rig.slot()
        assert rig.client.counts["sensor_failures"] == 0
        assert intake.unpack(rig.broker.payloads()[-1]).values == (symbol,)
