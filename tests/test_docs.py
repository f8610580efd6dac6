"""The files that the guides name exist, and the distributions that they tell to install are the project's own."""

import importlib.util
import json
import re
import subprocess
import tomllib

import pytest

from support.micropython import REPO
from undertone_device.setup import config
from undertone_shared import policy_fields

_spec = importlib.util.spec_from_file_location("examples", REPO / "scripts/examples.py")
_examples = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_examples)
EXAMPLES, text_of = _examples.EXAMPLES, _examples.text_of

GUIDES = sorted(
    REPO / name
    for name in subprocess.run(
        ["git", "ls-files", "*.md"], cwd=REPO, capture_output=True, encoding="utf-8", check=True
    ).stdout.split()
)
_LINK = re.compile(r"\]\(([^)#\s]+)[^)]*\)")


@pytest.mark.parametrize("guide", GUIDES, ids=lambda guide: str(guide.relative_to(REPO)))
def test_links_lead_somewhere(guide):
    links = [link for link in _LINK.findall(guide.read_text(encoding="utf-8")) if "://" not in link]
    missing = [link for link in links if not (guide.parent / link).exists()]
    assert not missing, f"{guide.name} points to {', '.join(missing)}"


# Files and folders of the repository that a guide names, such as `tests/device/board/test_board.py`.
_PATH = re.compile(r"`((?:tests|docs|shared|device|aggregator|simulator|cli|scripts)/[\w./-]+)(?:::\w+)?`")


@pytest.mark.parametrize("guide", GUIDES, ids=lambda guide: str(guide.relative_to(REPO)))
def test_paths_are_there(guide):
    named = _PATH.findall(guide.read_text(encoding="utf-8"))
    missing = [path for path in named if not ((REPO / path).exists() or (guide.parent / path).exists())]
    assert not missing, f"{guide.name} names {', '.join(missing)}"


_INSTALLS = re.compile(r"(?:pip3? install|pip wheel|pipx install|uv add)[^`\n]*")
# On the package index, this name belongs to another tool, whose command has the same name.
_BARE = re.compile(r"(?<![\w/.-])undertone(?![\w-]|/)")
TOLD = sorted(
    REPO / name
    for name in subprocess.run(
        ["git", "ls-files", "*.md", "*.py", "*.sh", "*.toml", "*.yml", "Makefile", "*.service"],
        cwd=REPO,
        capture_output=True,
        encoding="utf-8",
        check=True,
    ).stdout.split()
)


def bare_names(text):
    """Places that advise to install the distribution by the other tool's name."""
    advised = [part for part in _INSTALLS.findall(text) if _BARE.search(part)]
    return advised + re.findall(r"""(?<![\w./-])["'`]?undertone\[[a-z-]+\]""", text)


def test_nobody_is_told_to_install_another_distribution():
    told = {str(path.relative_to(REPO)): bare_names(path.read_text(encoding="utf-8")) for path in TOLD if path.exists()}
    told.pop("tests/test_docs.py", None)
    assert {name: advice for name, advice in told.items() if advice} == {}


@pytest.mark.parametrize(
    "advice",
    ["pip install undertone", "run pip install 'undertone[all]'", "needs `undertone[aggregator]` and more"],
)
def test_the_bare_name_is_found(advice):
    assert bare_names(advice)


@pytest.mark.parametrize("advice", ["pip install 'undertone-ldp[all]'", "/opt/undertone/bin/pip install undertone-ldp"])
def test_our_name_is_let_through(advice):
    assert not bare_names(advice)


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_examples_show_every_field_that_the_parsers_know(name):
    """A new field or a changed default changes the examples, which scripts/examples.py writes."""
    made = EXAMPLES[name]()
    assert (REPO / "device/examples" / name).read_text(encoding="utf-8") == text_of(made)
    if name == "policy.json":
        assert list(made) == list(policy_fields.default_fields())
    else:
        assert list(made) == list(config._FIELDS)
        assert set(made["broker"]) == set(config._BROKER) - {"password"}
        assert None not in made.values()


def test_the_guides_policy_is_the_examples():
    (block,) = re.findall(
        r"```json\n(\{\"version\".*?)```", (REPO / "device/README.md").read_text(encoding="utf-8"), re.DOTALL
    )
    whole = EXAMPLES["policy.json"]()
    assert {**whole, **json.loads(block)} == whole


# A test that a guide names, such as `tests/aggregator/test_faults.py::test_killed_at_twenty_random_points`.
_NAMED_TEST = re.compile(r"`(tests/[\w./-]+\.py)::(\w+)`")


@pytest.mark.parametrize("guide", GUIDES, ids=lambda guide: str(guide.relative_to(REPO)))
def test_tests_that_a_guide_names_are_there(guide):
    named = _NAMED_TEST.findall(guide.read_text(encoding="utf-8"))
    missing = [
        f"{file}::{test}" for file, test in named if f"\ndef {test}(" not in (REPO / file).read_text(encoding="utf-8")
    ]
    assert not missing, f"{guide.name} names {', '.join(missing)}"


def test_every_attack_has_an_answer_and_a_test():
    page = (REPO / "docs/threats.md").read_text(encoding="utf-8")
    rows = page.partition("| attack or mishap | what happens | test |\n|---|---|---|\n")[2].splitlines()
    assert len(rows) >= 21
    for row in rows:
        attack, answer, tests = (cell.strip() for cell in row.strip("|").split("|"))
        assert attack, row
        assert answer, row
        assert re.sub(_NAMED_TEST, "", tests).strip(", ") == "", row


def test_the_page_about_installing_has_each_extra():
    extras = {}
    for folder in (REPO, REPO / "device"):
        project = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        extras[project["name"]] = set(project["optional-dependencies"])
    # The extras of undertone-device are extras of undertone-ldp, too.
    extras["undertone-ldp"] -= extras["undertone-device"]
    page = (REPO / "docs/install.md").read_text(encoding="utf-8")
    rows = [line.split("|")[2] for line in page.splitlines() if line.startswith("| ")]
    named = {pair for row in rows for pair in re.findall(r"(undertone-\w+)\[(\w+)\]", row)}
    assert named == {(name, extra) for name, own in extras.items() for extra in own}
