"""When a device tries to reach its server again: its name and the number of refusals decide how long it waits."""

from undertone_device.mqtt.knocks import PERIOD, Knocks

NAMES = ["load-%05d" % number for number in range(4000)]


def test_a_fleet_comes_back_evenly_within_a_period():
    waits = [Knocks(name).lost() for name in NAMES]
    assert min(waits) >= 1000
    assert max(waits) < PERIOD
    # Each tenth of the time has about a tenth of the 4,000 devices. The limit is six standard deviations of 19 devices.
    tenths = [0] * 10
    for wait in waits:
        tenths[(wait - 1000) * 10 // (PERIOD - 1000)] += 1
    assert max(tenths) <= 514
    assert min(tenths) >= 286


def test_who_is_turned_away_waits_longer_and_stays_spread():
    fleet = [Knocks(name) for name in NAMES]
    for times in (1, 2, 4, 4):
        waits = [each.failed(True) for each in fleet]
        assert min(waits) >= times * PERIOD
        assert max(waits) < 2 * times * PERIOD
        half = sum([wait < 3 * times * PERIOD // 2 for wait in waits])
        # About half of the 4,000 devices wait less. The limit is six standard deviations of 31.6 devices.
        assert 1810 <= half <= 2190
    fleet[0].accepted()
    assert fleet[0].failed(True) < 2 * PERIOD


def test_who_starts_without_a_server_finds_a_time_of_its_own():
    device = Knocks("meter-1")
    assert [device.failed(False) for _ in range(3)] == [device.lost(), PERIOD, PERIOD]


def test_the_example_of_the_wire():
    """docs/wire.md has this example: sha256(meter-1) begins with these bytes."""
    device = Knocks("meter-1")
    assert device._hash == 0xC994C5
    assert (device.lost(), device.failed(True)) == (54821, 70821)


def test_two_devices_of_one_name_do_not_throw_each_other_out_all_the_time():
    """A device waits for at least a second before it connects again, or for half of the period if that is shorter."""
    for period in (PERIOD, 500, 2):
        assert min([Knocks(name, period).lost() for name in NAMES]) >= min(1000, period // 2)
