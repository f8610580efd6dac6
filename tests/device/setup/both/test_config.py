"""The configuration file: what it may contain, and one clear sentence for anything else."""

import json

from undertone_device.setup import assembly
from undertone_device.setup.config import LARGEST, parse_config, read_config
from undertone_shared.errors import Invalid

LEAST = {"name": "meter-1", "broker": {"host": "h"}, "campaigns": ["load"], "policy": "policy.json", "state": "state"}


def parse(folder="", **changes):
    value = dict(LEAST)
    for name in changes:
        if changes[name] is None:
            del value[name]
        else:
            value[name] = changes[name]
    return parse_config(json.dumps(value).encode(), folder)


def refused(text, **changes):
    try:
        parse(**changes)
    except Invalid as error:
        assert text in str(error), str(error)
    else:
        raise AssertionError("accepted: %s" % text)


def test_defaults():
    config = parse()
    assert (config.name, config.prefix, config.campaigns) == ("meter-1", "undertone/v2", ("load",))
    broker = config.broker
    assert (broker.host, broker.port, broker.user, broker.password, broker.tls) == ("h", 1883, "meter-1", None, None)
    assert broker.keepalive == 60
    assert (config.counter_modulus, config.in_flight, config.spread_percent) == (0, 4, 50)
    assert config.source == {} and config.wifi is None and config.groups == {}


def test_everything():
    config = parse(
        folder="/etc/undertone",
        broker={
            "host": "b.example",
            "user": "u",
            "password_file": "password",
            "tls": {"ca": "/ca.pem"},
            "keepalive": 30,
        },
        prefix="a/b",
        campaigns=["load", "heat"],
        groups={"load": "north"},
        counter_modulus=100000,
        source={"kind": "command", "command": ["read-meter", "1"], "seconds": 60},
        publish={"in_flight": 1, "spread_percent": 0},
        wifi={"ssid": "s", "password": "p"},
    )
    assert config.broker.port == 8883
    assert config.groups == {"load": "north"}
    assert config.broker.tls == "/ca.pem"
    assert config.broker.password_file == "/etc/undertone/password"
    assert config.policy == "/etc/undertone/policy.json"
    assert config.sample_seconds == 60


def test_every_refusal_names_the_field():
    for name in LEAST:
        refused(name, **{name: None})
    refused("unknown field 'colour'", colour="red")
    refused("name is 'Meter 1'", name="Meter 1")
    refused("outbox is 0, expected an integer from 1 to 4096", outbox=0)
    refused("outbox is 5000", outbox=5000)
    refused("broker is 3", broker=3)
    # Text may be an address with a password in it, so no error shows it.
    refused("broker is text, expected an object", broker="mqtt://user:secret@h")
    refused("wifi is text, expected an object", wifi="secret")
    refused("broker.host", broker={"host": ""})
    refused("broker.host", broker={"host": 5})
    refused("broker.port", broker={"host": "h", "port": 0})
    refused("broker.port", broker={"host": "h", "port": "1883"})
    refused("broker.keepalive is 0", broker={"host": "h", "keepalive": 0})
    refused("unknown field", broker={"host": "h", "tsl": {}})
    refused("broker.tls is True", broker={"host": "h", "tls": True})
    refused("broker.tls.ca", broker={"host": "h", "tls": {"ca": ""}})
    refused("broker.password is wrong", broker={"host": "h", "password": ""})
    refused("expected one of them", broker={"host": "h", "password": "a", "password_file": "b"})
    refused("prefix", prefix="a/+/b")
    refused("campaigns is []", campaigns=[])
    refused("campaigns[1]", campaigns=["a", "#"])
    refused("groups is ['north']", groups=["north"])
    refused("a campaign in groups is '#'", groups={"#": "north"})
    refused("groups.load is 7", groups={"load": 7})
    refused("policy", policy=7)
    refused("state", state="a\0b")
    refused("counter_modulus", counter_modulus=-1)
    refused("source is ['stdin']", source=["stdin"])
    refused("source.seconds", source={"kind": "stdin", "seconds": -1})
    refused("publish.in_flight", publish={"in_flight": 0})
    refused("publish.spread_percent is 100", publish={"spread_percent": 100})
    refused("wifi.ssid", wifi={"ssid": "x" * 65})


def test_no_error_shows_a_password():
    for password in (12345678, "geheim\0", "geheim" * 1000):
        for changes in ({"broker": {"host": "h", "password": password}}, {"wifi": {"ssid": "s", "password": password}}):
            try:
                parse(**changes)
            except Invalid as error:
                assert "password is wrong, expected text of 1 to" in str(error), str(error)
                assert "geheim" not in str(error) and "12345678" not in str(error)
            else:
                raise AssertionError("accepted a wrong password")


def test_what_is_not_an_object_of_bounded_size():
    for data in (b"", b"[", b"[]", b"3", b"\xff", b"null", b" " * (LARGEST + 1), b"[" * 8000):
        try:
            parse_config(data)
        except Invalid:
            continue
        raise AssertionError(data[:20])


def test_files():
    with open("device.json", "w", encoding="utf-8") as file:
        file.write(json.dumps(dict(LEAST, broker={"host": "h", "password_file": "password"})))
    config = read_config("device.json")
    assert config.policy == "policy.json"
    assert read_config("./device.json").policy == "./policy.json"
    for content, expected in (("geheim\n", "geheim"), ("", None), ("x" * 2000, None)):
        with open("password", "w", encoding="utf-8") as file:
            file.write(content)
        try:
            assert assembly.read_password(config.broker) == expected
        except Invalid as error:
            assert expected is None and "password" in str(error)
    for path in ("absent.json", "no/such/folder"):
        try:
            read_config(path)
        except Invalid as error:
            assert path in str(error)
        else:
            raise AssertionError(path)


RUNS_ON = ("cpython", "micropython")
