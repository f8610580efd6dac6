"""Who asks households to take part, and for what purpose, as the page shows it."""

import time
from pathlib import Path

from support.many import PLAN
from undertone_aggregator.server.folder import Home
from undertone_operate.fleet.agreements import newest_words
from undertone_operate.fleet.join_codes import JoinCodes


def test_the_newest_words_of_a_campaign_and_of_those_before_it(tmp_path: Path) -> None:
    (tmp_path / "server.toml").write_text("[server]\n", encoding="utf-8")
    home = Home(tmp_path)
    for name, earlier in (("power", ""), ("later", '\nsucceeds = "power"'), ("gas", "")):
        home.write_plan(name, PLAN.format(name=name, epsilon=1).replace("[campaign]", f"[campaign]{earlier}", 1))
    assert newest_words(home, "power") == ("", "", ""), "no file of codes, and nobody is named"
    codes, now = JoinCodes(tmp_path), int(time.time())
    for campaign, about in (
        ("power", "To plan the grid."),
        ("gas", "To save gas."),
        ("power", "To plan the new grid."),
    ):
        codes.create(campaign, 2, "all", about, now, now + 60)
    join = '[join]\nlisten = "127.0.0.1:8444"\nurl = "http://localhost:8444"\ninsecure = true\n'
    (tmp_path / "server.toml").write_text(f'[server]\n{join}operator = "Municipal works"\n', encoding="utf-8")
    assert newest_words(home, "power") == ("Municipal works", "To plan the new grid.", "")
    assert newest_words(home, "later") == ("Municipal works", "To plan the new grid.", "")
    assert newest_words(home, "gas") == ("Municipal works", "To save gas.", "")
    (tmp_path / "server.toml").write_text(f"[server]\n{join}", encoding="utf-8")
    assert newest_words(home, "gas") == ("localhost", "To save gas.", ""), "without a name, the host of the links"
    contact = 'contact = "energy@meters.example.org"\n'
    (tmp_path / "server.toml").write_text(f"[server]\n{join}{contact}", encoding="utf-8")
    assert newest_words(home, "gas") == ("localhost", "To save gas.", "energy@meters.example.org")
    codes.path.write_bytes(b"no database" * 100)
    assert newest_words(home, "gas") == ("", "", ""), "a damaged file of codes gives no words and no error"
