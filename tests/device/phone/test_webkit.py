"""The phone's app in WebKitGTK's MiniBrowser. In a private window, this browser lets no page keep files."""

from pathlib import Path

import pytest

from support.ci import absent
from support.phone_site import CODE, PhoneSite
from support.webkit import MISSING, find_webkit, webkit

pytestmark = pytest.mark.services


def test_where_storage_is_missing_one_sentence_says_so(tmp_path: Path, site: PhoneSite) -> None:
    if find_webkit() is None:
        absent(MISSING)
    with webkit(tmp_path / "home") as page:
        page.goto(site.address + f"#{CODE}")
        page.wait("document.getElementById('screen')?.dataset.screen === 'unable'")
        shown = page.evaluate("document.querySelector('main').innerText")
    assert "This browser cannot take part" in shown
    assert "does not let it keep one" in shown
    assert [path for _, path in site.requests if "/api/" in path] == [], "the code is not used up"
