"""What Home Assistant and HACS expect of an integration's files, and what the zip holds."""

import ast
import json
import re
import sys
import zipfile

import pytest

from support.micropython import REPO

sys.path.append(str(REPO / "scripts"))

import home_assistant_zip

FOLDER = home_assistant_zip.INTEGRATION


def texts(tree, path=""):
    """Every text of a translation by its place."""
    if isinstance(tree, str):
        return {path: tree}
    return {place: text for name, part in tree.items() for place, text in texts(part, f"{path}/{name}").items()}


def read(name):
    return texts(json.loads((FOLDER / name).read_text("utf-8")))


@pytest.mark.parametrize("language", ["en", "de"])
def test_a_translation_has_every_text_with_its_placeholders(language):
    original, translated = read("strings.json"), read(f"translations/{language}.json")
    assert translated.keys() == original.keys()
    for place, text in original.items():
        assert set(re.findall(r"\{\w+\}", translated[place])) == set(re.findall(r"\{\w+\}", text)), place
    assert language != "en" or translated == original


def test_every_error_issue_and_entity_of_the_code_has_a_text():
    known = read("strings.json")
    flow = (FOLDER / "config_flow.py").read_text("utf-8")
    [errors] = [
        ast.literal_eval(node.value)
        for node in ast.parse(flow).body
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "_ERRORS"
    ]
    assert {f"/config/error/{word}" for word in (*errors, "not_agreed", "wrong_unit")} <= known.keys()
    for issue in re.findall(r'"(wrong_unit|campaign_refused|wrong_clock|campaign_over|lifetime_spent)"', flow):
        assert f"/issues/{issue}/title" in known
    for key in re.findall(r'Shown\("(\w+)"', (FOLDER / "sensor.py").read_text("utf-8")):
        assert f"/entity/sensor/{key}/name" in known


def test_the_manifest_names_what_home_assistant_asks_for():
    manifest = json.loads((FOLDER / "manifest.json").read_text("utf-8"))
    assert manifest["domain"] == FOLDER.name == "undertone"
    assert manifest["config_flow"] is True
    assert manifest["requirements"] == [], "the zip holds the device package; see __init__.py"
    version = re.search(r'"([\d.]+)"', (REPO / "shared/undertone_shared/__init__.py").read_text("utf-8"))
    assert version is None or manifest["version"] == version[1]


def test_the_zip_holds_the_device_package_and_nothing_for_boards(tmp_path):
    home_assistant_zip.main(str(tmp_path / "undertone.zip"))
    with zipfile.ZipFile(tmp_path / "undertone.zip") as archive:
        names = archive.namelist()
    assert {"manifest.json", "translations/de.json", "packages/undertone_shared/policy.py"} <= set(names)
    assert "packages/undertone_device/core/reporter.py" in names
    assert not [name for name in names if "/board/" in name or "/tools/" in name or name.endswith(".pyc")]
