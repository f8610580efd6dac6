"""The size of the files that a phone loads from the server when its owner joins."""

import re

import pytest

from support.ci import unavailable
from support.micropython import REPO
from undertone_operate.join.pages import phone_pages
from undertone_shared.errors import Invalid


@pytest.mark.services
def test_the_phones_app_takes_what_its_page_says() -> None:
    try:
        pages = phone_pages("wss://localhost/mqtt")
    except Invalid as missing:
        unavailable(str(missing))
    total = sum(len(page.compressed) for page in pages.files.values())
    text = (REPO / "docs/phones.md").read_text(encoding="utf-8")
    found = re.search(r"once for each version, which takes about (\d+) KB", text)
    assert found
    # The page rounds to 10 KB, which is up to 1.5 %. Versions of zlib differ a little, too.
    assert int(found[1]) * 1000 == pytest.approx(total, rel=0.03)
