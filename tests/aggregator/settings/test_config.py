import contextlib
import dataclasses
import math
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support import server
from support.refusal import refused
from undertone_aggregator.estimate.spreadsheets import as_cell
from undertone_aggregator.server.folder import Home
from undertone_aggregator.settings.broker_options import BrokerOptions
from undertone_aggregator.settings.config import SECTIONS, CampaignPlan, StreamPlan, parse_config, read_config
from undertone_aggregator.settings.sample import sample_tables
from undertone_shared.errors import Invalid

HERE = Path("/somewhere")
# The table [stream] is refused beside collect = "reports".
SAMPLE = sample_tables(*(name for name in SECTIONS if name != "stream"))
EXTERNAL = '[broker]\nmode = "external"\npassword_file = "p"\n'
DIRECT = '[broker]\nmode = "direct"\npasswords = "p"\n'


def test_the_sample_is_a_valid_configuration_with_every_default() -> None:
    config = parse_config(SAMPLE, HERE)
    assert config.broker.mode == "direct"
    assert config.campaign.epsilon == 1
    assert config.campaign.rounds == (48, 48, 48)
    assert config.campaign.start is None
    assert config.path(config.store.path) == HERE / "undertone.sqlite"


def test_the_sample_of_a_stream_is_valid() -> None:
    text = SAMPLE.replace('collect = "reports"', 'collect = "stream"')
    for name in ("query", "bins", "rounds", "method", "blocks"):
        text = "".join(line for line in text.splitlines(keepends=True) if not line.startswith(f"{name} = "))
    stream = parse_config(text + sample_tables("stream"), HERE).stream
    assert stream is not None
    assert (stream.theta, stream.share, stream.round_slots) == (None, None, 0)


def test_optional_lines_of_the_sample_are_valid_too() -> None:
    text = SAMPLE.replace("# start", "start").replace("# cohort_seed", "cohort_seed")
    assert parse_config(text, HERE).campaign.cohort_seed == bytes(range(16))


def test_an_epsilon_is_the_decimal_that_is_written() -> None:
    assert server.plan(epsilon=0.1).epsilon == Fraction(1, 10)
    assert server.plan(epsilon='"0.1"').epsilon == Fraction(1, 10)


@pytest.mark.parametrize(
    ("options", "facts"),
    [
        ({"epsilon": 9}, ("campaign.epsilon", 9, 0.05, 8)),
        ({"bound": 0}, ("campaign.bound", 0, 1)),
        ({"reach": 1}, ("campaign.reach", 1, 1.01, 2)),
        ({"reach": 1.2, "mechanism": '"auto"', "collect": '"stream"'}, ("campaign.reach", 1.2, "streams")),
        ({"reach": 1.2, "mechanism": '"hybrid"'}, ("campaign.reach", 1.2, "campaign.mechanism", "auto", "optimal")),
        ({"bound": '"1"'}, ("campaign.bound", "'1'", "integer")),
        ({"name": '"Meters"'}, ("campaign.name", "'Meters'")),
        ({"rounds": []}, ("campaign.rounds", "[]")),
        ({"rounds": [4, 0]}, ("campaign.rounds[1]", 0)),
        ({"query": '"mean"'}, ("campaign.query", "'mean'", "shown", "fleet", "ranges:R")),
        ({"query": '"ranges:2000000"'}, ("campaign.query", "'ranges:2000000'", 1048576)),
        ({"bins": '"odd"'}, ("campaign.bins", "'odd'", "logarithmic", "linear")),
        ({"query": '"fleet"', "collect": '"stream"'}, ("campaign.query", "'fleet'", "streams")),
        ({"window": '"24h"', "collect": '"stream"'}, ("campaign.window", "'24h'", "renewal in [stream]")),
        ({"theta_max": 500, "collect": '"stream"'}, ("campaign.theta_max", 500, "theta in [stream]")),
        ({"method": '"magic"'}, ("campaign.method", "'magic'", "robust", "ems", "sw-w")),
        ({"start": '"soon"'}, ("campaign.start", "'soon'", '"now"')),
        ({"slot_seconds": 60, "start": 61}, ("campaign.start", 61, "slot_seconds = 60")),
        ({"default": 2000}, ("campaign.default", 2000, "0 to 1000")),
        ({"cohort_share": 1.5}, ("campaign.cohort_share", 1.5)),
        ({"cohort_seed": '"00"'}, ("campaign.cohort_seed", "'00'", 32)),
        ({"thetta": 1}, ("[campaign]", "'thetta'")),
    ],
)
def test_what_is_wrong_is_named(options: dict[str, object], facts: tuple[object, ...]) -> None:
    with refused(*facts):
        server.plan(**options)


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        ("[brokr]", ("[brokr]",)),
        ("broker = 1", ("broker", 1, "[broker]")),
        ('[broker]\nmode = "none"', ("broker.mode", "'none'", "direct", "external")),
        ('[broker]\nmode = "external"', ("password_file", "[broker]")),
        ('[broker]\nca_file = "x"', ("broker.ca_file", "broker.certificate")),
        (EXTERNAL + 'host = "a"\nhosts = ["b"]', ("broker.host", "'a'", "broker.hosts")),
        (EXTERNAL + 'key = "x"', ("broker.key", "'direct'", "'external'")),
        (DIRECT + 'websocket_url = "wss://a"', ("broker.websocket_url", "'external'", "'direct'")),
        *(
            (EXTERNAL + f'websocket_url = "{url}"', ("broker.websocket_url", url))
            for url in (
                "https://a",
                "wss://a b",
                "wss://a;script-src *",
                "wss://me@a",
                "wss://a/?b",
                "wss://a:0x1",
                "ws://broker.example",
            )
        ),
        (EXTERNAL + 'hosts = ["b"]\nwebsocket_url = "wss://a"', ("broker.websocket_url", "broker.hosts")),
        (EXTERNAL + 'access = "a"', ("broker.access", "'direct'", "'external'")),
        (EXTERNAL + 'passwords = "a"', ("broker.passwords", "'direct'", "'external'")),
        (DIRECT + 'ca_file = "a"', ("broker.ca_file", "broker.certificate")),
        (DIRECT + 'password_file = "a"', ("broker.password_file", "'external'", "'direct'")),
        (DIRECT + 'certificate = "a"', ("key", "certificate", "[broker]")),
        (DIRECT + 'key = "a"', ("certificate", "[broker]")),
        (DIRECT + 'host = "0.0.0.0"', ("broker.host", "'0.0.0.0'", "broker.certificate")),
        (DIRECT + 'host = "server.example"', ("broker.host", "'server.example'", "plain text")),
        (DIRECT + "[server]\nworkers = 2", ("server.workers", 2, "'direct'")),
        ('[broker]\nprefix = "a/+"', ("prefix", "'+'")),
        ("[server]\nworkers = 65", ("server.workers", 65, "1 to 64")),
        ('[server]\nhealth = "a b"', ("server.health", "'a b'", "ADDRESS:PORT")),
        ('[server]\npage = "::1:8080"', ("server.page", "'::1:8080'", "ADDRESS:PORT")),
        ('[server]\npage = "127.0.0.1:65536"', ("server.page", "'127.0.0.1:65536'", "ADDRESS:PORT")),
        (EXTERNAL + 'host = "a b"', ("broker.host", "'a b'")),
        (EXTERNAL + 'host = "a..b"', ("broker.host", "'a..b'")),
        (EXTERNAL + f'host = "{"a" * 64}.example"', ("broker.host",)),
        (EXTERNAL + 'host = "..:"', ("broker.host", "'..:'")),
        (EXTERNAL + 'hosts = ["b.example", "a b"]', ("broker.hosts", "'a b'", "HOST", "HOST:PORT")),
        (EXTERNAL + f'hosts = ["b:{"9" * 5000}"]', ("broker.hosts", "HOST:PORT")),
        ('[broker]\ndirectory = "a\\u0000b"', ("broker.directory", "'a\\x00b'")),
        ("[broker", ("configuration", "TOML")),
    ],
)
def test_what_is_wrong_in_other_tables_is_named(text: str, facts: tuple[object, ...]) -> None:
    with refused(*facts):
        server.config(HERE, text)


@pytest.mark.parametrize("more", ["", 'host = "::1"', 'host = "0.0.0.0"\ncertificate = "c"\nkey = "k"'])
def test_where_a_direct_endpoint_may_listen(more: str) -> None:
    assert server.config(HERE, DIRECT + more).broker.mode == "direct"


def test_a_missing_option_is_named() -> None:
    with refused("name", "[campaign]"):
        parse_config("", HERE)


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_bytes(b"\xff\xfe")
    with refused("UTF-8"):
        read_config(path)


@given(st.text(max_size=200), st.integers(0, 2000), st.integers(0, 20))
def test_damaged_configurations_are_refused_in_a_sentence(junk: str, at: int, cut: int) -> None:
    sample = SAMPLE
    for text in (junk, sample[:at] + junk + sample[at + cut :]):
        with contextlib.suppress(Invalid):
            parse_config(text, HERE)


@pytest.mark.parametrize(
    ("options", "facts"),
    [
        ({"name": "Not A Name!"}, ("campaign.name", "'Not A Name!'")),
        ({"bound": -5}, ("campaign.bound", -5, 1)),
        ({"epsilon": 50}, ("campaign.epsilon", 50)),
        ({"default": 2000}, ("campaign.default", 2000, "0 to 1000")),
        ({"rounds": (4, 0)}, ("campaign.rounds[1]", 0)),
        ({"slot_seconds": 60, "start": 61}, ("campaign.start", 61)),
    ],
)
def test_a_plan_that_is_wrong_cannot_exist(options: dict[str, Any], facts: tuple[object, ...]) -> None:
    right = {"name": "meters", "sensor": "load", "unit": "Wh", "bound": 1000, "epsilon": Fraction(1)}
    plan = CampaignPlan(**right)
    assert replace(plan) == plan, "what was checked once passes again"
    for make in (lambda: CampaignPlan(**{**right, **options}), lambda: replace(plan, **options)):
        with refused(*facts):
            make()


def test_one_word_says_how_a_campaign_collects() -> None:
    plain = '[campaign]\nname = "m"\nsensor = "load"\nunit = "Wh"\nbound = 9\nepsilon = 1\n'
    assert parse_config(plain, Path()).kind == "scalar"
    stream = parse_config(plain + 'collect = "stream"\n', Path())
    assert (stream.kind, stream.stream) == ("stream", StreamPlan())
    with refused("campaign.collect", "'streams'", "reports", "stream"):
        parse_config(plain + 'collect = "streams"\n', Path())
    with refused("[stream]", "campaign.collect", "'reports'", "'stream'"):
        parse_config(plain + "[stream]\n", Path())


@pytest.mark.parametrize("blocks", [2, 8])
def test_a_stream_has_one_range_and_blocks_that_are_asked_for_are_refused(blocks: int) -> None:
    plain = '[campaign]\nname = "m"\nsensor = "load"\nunit = "Wh"\nbound = 9\nepsilon = 1\n'
    with refused("campaign.blocks", blocks, 1):
        parse_config(f'{plain}blocks = {blocks}\ncollect = "stream"\n', Path())
    assert parse_config(f'{plain}blocks = 1\ncollect = "stream"\n', Path()).campaign.blocks == 1
    assert parse_config(f"{plain}blocks = {blocks}\n", Path()).campaign.blocks == blocks


@pytest.mark.parametrize("option", ['window = "24h"', "theta_max = 5"])
def test_what_a_stream_would_ignore_is_refused(option: str) -> None:
    plain = '[campaign]\nname = "m"\nsensor = "load"\nunit = "Wh"\nbound = 9\nepsilon = 1\n'
    with refused(f"campaign.{option.split()[0]}", "campaign.collect", "'stream'"):
        parse_config(f'{plain}{option}\ncollect = "stream"\n', Path())
    parse_config(f"{plain}{option}\n", Path())


@pytest.mark.parametrize("title", ["", " x", "two\\nlines", "x" * 81])
def test_a_title_is_one_short_line(title: str) -> None:
    plain = '[campaign]\nname = "m"\nsensor = "load"\nunit = "Wh"\nbound = 9\nepsilon = 1\n'
    with refused("campaign.title"):
        parse_config(f'{plain}title = "{title}"\n', Path())
    assert parse_config(f'{plain}title = "{"x" * 80}"\n', Path()).campaign.title == "x" * 80
    assert parse_config(plain, Path()).campaign.title is None


@pytest.mark.parametrize("text", [f"bound = {'9' * 5000}", f"bound = {'[' * 2000}", 'window = "\u00b2h"'])
def test_toml_that_python_cannot_take_is_bad_input_too(tmp_path: Path, text: str) -> None:
    plan = f'[campaign]\nname = "m"\nsensor = "load"\nunit = "Wh"\n{text}\nepsilon = 1\n'
    if "window" in text:
        plan += "bound = 9\n"
    with pytest.raises(Invalid):
        parse_config(plan, Path())
    (tmp_path / "server.toml").write_text("", encoding="utf-8")
    with pytest.raises(Invalid):
        Home(tmp_path).config("m", plan)


def test_other_tables_are_checked_where_they_are_made() -> None:
    for make in (
        lambda: StreamPlan(delta=2.0),
        lambda: BrokerOptions(port=70_000),
        lambda: StreamPlan(slew=Fraction(3, 4)),
    ):
        with pytest.raises(Invalid):
            make()


@pytest.mark.parametrize(
    ("window", "slot_seconds", "cycle", "stride"),
    [(None, 1800, 48, 1), ("24h", 1800, 48, 49), ("1d", 7200, 12, 13), ("7d", 1800, 48, 337), ("6h", 1800, 48, 13),
     ("5h", 1800, 48, 11), ("4h30m", 1800, 48, None), ("90m", 1800, 48, 5), ("25h", 1800, 48, 53)],
)  # fmt: skip
def test_a_window_gives_the_stride(window, slot_seconds, cycle, stride) -> None:  # type: ignore[no-untyped-def]
    changes = {} if window is None else {"window": f'"{window}"'}
    if stride is None:
        with refused("campaign.window", "'4h30m'"):
            server.plan(slot_seconds=slot_seconds, cycle=cycle, **changes)
        return
    made = server.plan(slot_seconds=slot_seconds, cycle=cycle, **changes)
    assert made.stride == stride
    # Between the end of a device's turn and the start of its next turn lies at least the window.
    assert window is None or (made.stride - 1) * slot_seconds >= made.window
    assert math.gcd(made.stride, cycle) == math.gcd(made.cohort_stride, cycle * made.stride) == 1
    # A counter's value begins with a reading of the slot before.
    counter = dataclasses.replace(made, measure="counter")
    assert window is None or (counter.stride - 2) * slot_seconds >= made.window


@pytest.mark.parametrize(
    ("share", "cycle", "stride"), [(0.05, 48, 19), (0, 48, 0), (0.1, 48, 11), (0.2, 4, 5), (0.9, 48, 5), (0.05, 1, 20)]
)
def test_a_share_gives_the_cohorts_stride(share, cycle, stride):
    made = server.plan(cohort_share=share, cycle=cycle)
    assert made.cohort_stride == stride
    assert made.report_share == (1 - 1 / stride if stride else 1)


@pytest.mark.parametrize(
    "unit", ["=1+1", "+cmd|' /C calc'!A0"[:16], "-2", "@SUM(A1)", "\\tWh", "W\\nh", "W\\u202Eh", "\\u200FWh", "\\u0085"]
)
def test_a_unit_that_is_a_formula_or_not_seen_is_refused(unit: str) -> None:
    text = f'[campaign]\nname = "m"\nsensor = "load"\nunit = "{unit}"\nbound = 9\nepsilon = 1\n'
    with refused("campaign.unit"):
        parse_config(text, HERE)


@pytest.mark.parametrize("unit", ["Wh", "°C", "µg/m³", "€", "‰", "kWh per day", "度"])
def test_units_of_all_kinds_are_taken(unit: str) -> None:
    text = f'[campaign]\nname = "m"\nsensor = "load"\nunit = "{unit}"\nbound = 9\nepsilon = 1\n'
    assert parse_config(text, HERE).campaign.unit == unit


def test_a_cell_is_no_formula() -> None:
    assert [as_cell(text) for text in ("=1+1", "+1", "-a", "@x", "\tx", "Wh", "a=1", "")] == [
        "'=1+1", "'+1", "'-a", "'@x", "'\tx", "Wh", "a=1", ""
    ]  # fmt: skip


def test_the_names_of_a_page_are_names(tmp_path: Path) -> None:
    path = tmp_path / "server.toml"
    path.write_text('[server]\npage_names = ["stats.example.org", "a b"]\n', encoding="utf-8")
    with refused("page_names", "'a b'"):
        _ = Home(tmp_path).server
    path.write_text('[server]\npage_names = ["stats.example.org"]\n', encoding="utf-8")
    assert Home(tmp_path).server.page_names == ("stats.example.org",)
