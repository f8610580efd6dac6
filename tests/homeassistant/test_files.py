"""The files of the integration follow the rules of hassfest and HACS, and the zip has the right contents.

hassfest is not in a package. Its rules are those of script/hassfest of home-assistant/core (manifest.py,
translations.py, icons.py, services.py, config_flow.py, quality_scale.py and quality_scale_validation). The rules of
HACS are in custom_components/hacs/utils/validate.py of hacs/integration. The test has those that concern a custom
integration.
"""

import ast
import json
import re
import string
import subprocess
import sys
import zipfile

import pytest
import yaml

from support.micropython import REPO
from undertone_device.host import household

sys.path.append(str(REPO / "scripts"))

import home_assistant_zip

FOLDER = home_assistant_zip.INTEGRATION
# Only those who publish the integration know its address. HACS needs both keys, and hassfest needs the first.
UNPUBLISHED = {"documentation", "issue_tracker"}
OPTIONAL = {"codeowners", "config_flow", "integration_type", "iot_class", "loggers", "requirements", "version"}
KEY = re.compile(r"^(?!.+[_-]{2})(?![_-])[a-z0-9-_]+(?<![_-])$")
URL = re.compile(
    r"((ftps?|scp|https?|mqtts?|socket|socks5)://|www\.)[a-z0-9]+([-.][a-z0-9]+)*\.[a-z]{2,5}", re.IGNORECASE
)
STEP = {"title", "description", "data", "data_description", "submit"}


def load(name):
    return json.loads((FOLDER / name).read_text("utf-8"))


def texts(tree, path=""):
    """Every text of a translation, by its path in the file."""
    if isinstance(tree, str):
        return {path: tree}
    return {place: text for name, part in tree.items() for place, text in texts(part, f"{path}/{name}").items()}


def code(name):
    return ast.parse((FOLDER / name).read_text("utf-8"))


def functions(name):
    return {
        node.name: node for node in ast.walk(code(name)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


def test_the_manifest():
    manifest = load("manifest.json")
    keys = list(manifest)
    assert keys == ["domain", "name", *sorted(set(keys) - {"domain", "name"})]
    assert set(keys) - UNPUBLISHED == {"domain", "name"} | OPTIONAL
    assert manifest["domain"] == FOLDER.name == "undertone"
    assert manifest["config_flow"] is True
    assert manifest["integration_type"] in {"device", "entity", "hardware", "helper", "hub", "service", "system"}
    assert manifest["iot_class"] in {"assumed_state", "calculated"} | {
        f"{place}_{way}" for place in ("cloud", "local") for way in ("polling", "push")
    }
    assert isinstance(manifest["codeowners"], list)
    assert manifest["requirements"] == [], "the zip has the device package; see __init__.py"
    [version] = re.findall(r'__version__ = "([\d.]+)"', (REPO / "cli/undertone/__init__.py").read_text("utf-8"))
    assert manifest["version"] == version
    assert re.fullmatch(r"\d+\.\d+\.\d+", version)


def test_the_keys_that_only_a_publisher_can_fill_are_the_only_ones_that_are_missing():
    assert set(load("manifest.json")) & UNPUBLISHED == set()


def test_hacs_finds_the_integration_and_the_zip():
    root = REPO / "device/homeassistant"
    hacs = json.loads((root / "hacs.json").read_text("utf-8"))
    assert set(hacs) <= {
        "content_in_root", "country", "filename", "hacs", "hide_default_branch", "homeassistant",
        "persistent_directory", "render_readme", "zip_release", "name",
    }  # fmt: skip
    assert hacs["zip_release"] is True
    assert f'dist/{hacs["filename"]}"' in (REPO / "scripts/release.sh").read_text("utf-8")
    assert not hacs["content_in_root"]
    assert [path.name for path in (root / "custom_components").iterdir() if path.is_dir()] == ["undertone"]


@pytest.mark.parametrize("language", ["en", "de"])
def test_a_translation_has_every_text_with_its_placeholders(language):
    original, translated = texts(load("strings.json")), texts(load(f"translations/{language}.json"))
    assert translated.keys() == original.keys()
    for place, text in original.items():
        assert set(re.findall(r"\{\w+\}", translated[place])) == set(re.findall(r"\{\w+\}", text)), place
    assert language != "en" or translated == original


@pytest.mark.parametrize("name", ["strings.json", "translations/en.json", "translations/de.json"])
def test_texts_have_the_form_that_home_assistant_shows(name):
    strings = load(name)
    assert set(strings) <= {"title", "config", "entity", "issues", "exceptions"}
    for place, text in texts(strings).items():
        assert text == text.strip(), place
        assert not re.search(r"<[^>]+>", text), place
        assert not re.search(r"'\{\w+\}'", text), place
        assert not URL.search(text), place
        fields = [field for _, field, _, _ in string.Formatter().parse(text) if field]
        assert all(field.isidentifier() for field in fields), place
        # Names of states are shown without placeholders, so they must have none.
        assert "/state/" not in place or not fields, place
    assert set(strings["config"]) <= {"step", "error", "abort"}
    for step, parts in strings["config"]["step"].items():
        assert set(parts) <= STEP, step
        assert parts["data_description"].keys() <= parts["data"].keys(), step
    for platform, entities in strings["entity"].items():
        for key, parts in entities.items():
            assert KEY.match(key), (platform, key)
            assert set(parts) <= {"name", "state", "state_attributes", "unit_of_measurement"}
            assert all(KEY.match(state) for state in parts.get("state", {}))
    for issue, parts in strings["issues"].items():
        assert set(parts) == {"title", "description"}, issue


def test_every_word_of_the_code_has_a_text():
    known = texts(load("strings.json"))
    flow = code("config_flow.py")
    [errors] = [
        ast.literal_eval(node.value)
        for node in flow.body
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "_ERRORS"
    ]
    # errors[...] = "word"
    errors += tuple(
        node.value.value
        for node in ast.walk(flow)
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript)
        and isinstance(node.value, ast.Constant)
    )  # fmt: skip
    assert {f"/config/error/{word}" for word in errors} == {place for place in known if "/error/" in place}
    steps = {name.removeprefix("async_step_") for name in functions("config_flow.py") if name.startswith("async_step_")}
    assert steps - {"reauth"} == set(load("strings.json")["config"]["step"])
    [issues] = [
        ast.literal_eval(node.value)
        for node in code("issues.py").body
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "ISSUES"
    ]
    assert set(issues) == set(load("strings.json")["issues"])
    reasons = load("strings.json")["entity"]["sensor"]["status"]["state_attributes"]["why"]["state"]
    # A board that sleeps has one more reason for a missing report, which a home never has.
    assert set(reasons) == household.WHY.keys() - {"one_shot"}
    shown = re.findall(r'Shown\(\s*"(\w+)"', (FOLDER / "sensor.py").read_text("utf-8"))
    entities = load("strings.json")["entity"]
    sides, spans = (
        ast.literal_eval(node.value)
        for name in ("SIDES", "SPANS")
        for node in code("sensor.py").body
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == name
    )
    compared = {f"{side}_{span}" for side in sides for span in spans}
    assert {*shown, *compared} == set(entities["sensor"])
    [options] = re.findall(r"_attr_options = (\[.*\])", (FOLDER / "sensor.py").read_text("utf-8"))
    assert set(ast.literal_eval(options)) == set(entities["sensor"]["status"]["state"])


def test_every_entity_has_an_icon():
    icons, entities = load("icons.json"), load("strings.json")["entity"]
    assert set(icons) == {"entity"}
    assert {platform: set(keys) for platform, keys in icons["entity"].items()} == {
        platform: set(keys) for platform, keys in entities.items()
    }
    for keys in icons["entity"].values():
        for parts in keys.values():
            assert parts["default"].startswith("mdi:")
            assert all(icon.startswith("mdi:") and icon != parts["default"] for icon in parts.get("state", {}).values())


def test_there_are_no_service_actions():
    assert not (FOLDER / "services.yaml").exists()
    for path in FOLDER.glob("*.py"):
        assert "services.async_register" not in path.read_text("utf-8")


BRONZE = [
    "action-setup",
    "appropriate-polling",
    "brands",
    "common-modules",
    "config-flow",
    "config-flow-test-coverage",
    "dependency-transparency",
    "docs-actions",
    "docs-high-level-description",
    "docs-installation-instructions",
    "docs-removal-instructions",
    "entity-event-setup",
    "entity-unique-id",
    "has-entity-name",
    "runtime-data",
    "test-before-configure",
    "test-before-setup",
    "unique-config-entry",
]
SILVER = [
    "action-exceptions",
    "config-entry-unloading",
    "docs-configuration-parameters",
    "docs-installation-parameters",
    "entity-unavailable",
    "integration-owner",
    "log-when-unavailable",
    "parallel-updates",
    "reauthentication-flow",
    "test-coverage",
]


def test_the_quality_scale_names_every_rule_of_bronze_and_silver():
    rules = yaml.safe_load((FOLDER / "quality_scale.yaml").read_text("utf-8"))["rules"]
    assert list(rules) == [*BRONZE, *SILVER]
    for name, rule in rules.items():
        if rule != "done":
            assert set(rule) == {"status", "comment"}, name
            assert rule["status"] in {"exempt", "todo"}, name
    # In the level bronze, only rules that need the publisher's name are open.
    assert [name for name in BRONZE if isinstance(rules[name], dict) and rules[name]["status"] == "todo"] == ["brands"]


def test_the_rules_that_hassfest_finds_in_the_code():
    init = (FOLDER / "__init__.py").read_text("utf-8")
    assert "async_unload_entry" in functions("__init__.py")
    assert "entry.runtime_data = " in init
    assert re.search(r"raise ConfigEntry(Error|NotReady|AuthFailed)", init)
    flow = functions("config_flow.py")
    assert {"async_step_user", "async_step_reauth", "async_step_reconfigure"} <= flow.keys()
    assert "self._abort_if_unique_id_configured()" in (FOLDER / "config_flow.py").read_text("utf-8")
    for platform in ("button", "sensor", "switch"):
        assert re.search(r"^PARALLEL_UPDATES = \d$", (FOLDER / f"{platform}.py").read_text("utf-8"), re.MULTILINE)
    assert "_attr_has_entity_name = True" in (FOLDER / "entity.py").read_text("utf-8")


def test_the_zip_has_the_device_package_and_nothing_for_boards(tmp_path):
    home_assistant_zip.main(str(tmp_path / "undertone.zip"))
    with zipfile.ZipFile(tmp_path / "undertone.zip") as archive:
        names = archive.namelist()
        archive.extractall(tmp_path / "undertone")
    assert {"manifest.json", "icons.json", "quality_scale.yaml", "translations/de.json"} <= set(names)
    assert {"packages/undertone_shared/policy.py", "packages/undertone_device/core/reporter.py"} <= set(names)
    assert not [name for name in names if "/board/" in name or "/tools/" in name or name.endswith(".pyc")]
    # The zip has whole packages: the participation needs no other package of ours.
    packages = str(tmp_path / "undertone/packages")
    program = (
        f"import sys; sys.path = [{packages!r}, *[place for place in sys.path if 'undertone' not in place.lower()]];"
        "from undertone_device.host import household; from undertone_device.host.gateway import HostedDevice;"
        "import undertone_device; print(undertone_device.__file__)"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", program], capture_output=True, encoding="utf-8", check=True, cwd=tmp_path, env={}
    )
    assert packages in done.stdout
