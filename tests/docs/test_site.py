"""The site builds with --strict, and loads nothing from other hosts when it is read."""

import contextlib
import dataclasses
import functools
import http.server
import json
import re
import subprocess
import sys
import threading
from types import SimpleNamespace

import pytest
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import Files

import undertone
from support.chromium import MISSING, browser, find_chromium
from support.micropython import REPO
from undertone.app import SECTIONS
from undertone_aggregator.settings.config import SECTIONS as TABLES

sys.path.append(str(REPO / "scripts"))

import site_hooks

pytestmark = pytest.mark.services


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(out)]
    done = subprocess.run(command, cwd=REPO, capture_output=True, encoding="utf-8", timeout=800, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return out


def test_every_guide_is_a_page(site):
    pages = {path.relative_to(site).with_suffix("").as_posix() for path in site.rglob("*.html")}
    guides = {path.relative_to(REPO / "docs").with_suffix("").as_posix() for path in (REPO / "docs").rglob("*.md")}
    assert guides | {"index", "guides/device", "guides/aggregator", "guides/simulator"} <= pages


def test_each_command_and_each_setting_has_its_line(site):
    commands, settings = ((site / f"{name}.html").read_text("utf-8") for name in ("commands", "settings"))
    assert [name for names in SECTIONS.values() for name in names if f">undertone {name}<" not in commands] == []
    options = [field.name for section in TABLES.values() for field in dataclasses.fields(section)]
    assert [name for name in options if f"<code>{name}</code>" not in settings] == []


def test_nothing_is_fetched_from_elsewhere(site):
    loads = re.compile(r"""<(?:link|script|img|iframe|source)\b[^>]*?(?:href|src)=["']?((?:https?:)?//[^"'\s>]+)""")
    fetched = {
        f"{path.relative_to(site)}: {address}"
        for path in site.rglob("*.html")
        for address in loads.findall(path.read_text("utf-8"))
        if "rel=canonical" not in address
    }
    assert fetched == set()


def test_the_search_index_and_the_api_are_in_it(site):
    assert (site / "search" / "search_index.json").stat().st_size > 100_000
    assert "undertone_central.release.release" in (site / "reference.html").read_text("utf-8")


def test_a_link_to_a_file_that_does_not_exist_ends_the_build():
    page = SimpleNamespace(file=SimpleNamespace(src_uri="privacy.md"), meta={})
    with pytest.raises(PluginError, match=r"docs/privacy.md links to ../nothing.py, which does not exist"):
        site_hooks.on_page_markdown("see [this](../nothing.py)", page, None, Files([]))
    assert site_hooks.on_page_markdown("see [this](../Makefile)", page, None, Files([])) == "see this"


def test_formulas_are_set_as_formulas(site):
    found = {path.name: path.read_text("utf-8").count('class="formula"') for path in site.glob("*.html")}
    assert {name: count for name, count in found.items() if count} == {"cgm-proof.html": 2, "threshold.html": 1}


def test_each_page_says_the_version_and_leads_to_its_neighbours(site):
    for name in ("privacy.html", "operator.html"):
        text = (site / name).read_text("utf-8")
        assert f"Undertone {undertone.__version__}" in text
        assert text.count("md-footer__link--") == 2
        assert 'src="logo.svg"' in text
    assert (site / "changes.html").exists()


# Words for which people search -> the page that has a section with all these words.
SEARCHED = {
    "gdpr": "privacy.html",
    "withdraw consent": "privacy.html",
    "lost device": "privacy.html",
    "certificate expires": "operator.html",
    "offline week": "firmware.html",
    "battery": "firmware.html",
    "csv column": "api.html",
    "power cut": "guides/aggregator.html",
    "container image": "guides/aggregator.html",
    "police": "taking-part.html",
    "pseudonymous": "privacy.html",
    "proxy page": "operator.html",
}


@pytest.mark.parametrize("words", SEARCHED)
def test_words_that_people_search_for_lead_to_their_page(site, words):
    sections = json.loads((site / "search/search_index.json").read_text("utf-8"))["docs"]
    pages = {
        section["location"].partition("#")[0]
        for section in sections
        if all(word in f"{section['title']} {section['text']}".lower() for word in words.split())
    }
    assert SEARCHED[words] in pages


# Page -> the filter for its first picture in dark mode: a plot is inverted, and a screenshot is not.
DARK = {"results/cgm.html": "invert(0.9)", "results/any-24-hours.html": "invert(0.9)", "phones.html": "none"}


def test_plots_are_dark_in_dark_mode_and_screenshots_stay(site):
    if find_chromium() is None:
        pytest.skip(MISSING)
    with served(site) as address, browser() as chromium:
        page = chromium.new_context(color_scheme="dark").new_page()
        for name, wanted in DARK.items():
            page.goto(f"{address}/{name}", wait_until="load")
            page.wait_for_selector('[data-md-color-scheme="slate"]')
            shown = page.locator(".md-content img").first.evaluate("picture => getComputedStyle(picture).filter")
            assert shown.startswith(wanted), name


@contextlib.contextmanager
def served(folder):
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
