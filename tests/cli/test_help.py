"""Help texts and lists appear quickly: they do not import the modules that compute."""

import json
import os
import shlex
import subprocess
import sys
from dataclasses import fields

import pytest
from typer.main import get_command

from undertone.app import SECTIONS, app
from undertone.examples import EXAMPLES
from undertone_simulator.fast.options import SimulateOptions
from undertone_simulator.planning.options import PlanOptions

HEAVY = ["matplotlib", "numpy", "pandas", "pyarrow", "scipy"]
PROGRAM = f"""
import json, sys
sys.argv = ["undertone", "--help"]
from undertone.__main__ import main
code = main()
print(json.dumps([code, [name for name in {HEAVY} if name in sys.modules]]))
"""


def test_help_loads_nothing_heavy():
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, encoding="utf-8", check=True, timeout=240
    )
    *shown, last = done.stdout.splitlines()
    assert "simulate" in "\n".join(shown)
    assert json.loads(last) == [0, []]


READER = """
import json, sys
sys.argv = ["undertone", "web", "--help"]
from undertone.__main__ import main
main()
import undertone_aggregator.campaign.results, undertone_aggregator.store.sqlite_store, undertone_aggregator.web.app
print(json.dumps(sorted(sys.modules)))
"""


def test_a_reader_imports_neither_other_commands_nor_scipy_nor_another_database():
    done = subprocess.run(
        [sys.executable, "-c", READER], capture_output=True, encoding="utf-8", check=True, timeout=240
    )
    loaded = json.loads(done.stdout.splitlines()[-1])
    assert [name for name in loaded if name.startswith("undertone.commands.")] == ["undertone.commands.web"]
    assert not {"scipy", "sqlalchemy.dialects.postgresql", "undertone_studies"}.intersection(loaded)
    # The code that decides on θ is not imported either.
    assert not {f"undertone_aggregator.threshold.{name}" for name in ("choose", "day", "posterior")}.intersection(
        loaded
    )


OPERATOR = """
import json, sys
import undertone_aggregator.campaign.coordinator, undertone_aggregator.campaign.stream_rounds
import undertone_operate.fleet.device_files, undertone_simulator.demo, undertone_simulator.processes
print(json.dumps(sorted(sys.modules)))
"""


@pytest.mark.slow
def test_what_serves_provisions_and_demonstrates_imports_no_scipy():
    done = subprocess.run(
        [sys.executable, "-c", OPERATOR], capture_output=True, encoding="utf-8", check=True, timeout=240
    )
    loaded = json.loads(done.stdout)
    assert "undertone_aggregator.design.stream.calibration" in loaded
    assert "scipy" not in loaded


def test_each_command_has_its_place_in_one_section_of_the_help():
    named = [name for names in SECTIONS.values() for name in names]
    assert sorted(named) == sorted(get_command(app).commands)


def test_no_summary_of_a_command_is_cut_off(capsys):
    with pytest.raises(SystemExit):
        get_command(app).main(["--help"], prog_name="undertone", terminal_width=80)
    shown = capsys.readouterr().out.partition("Options:")[2]
    assert "..." not in shown
    assert "Other commands" not in shown


def commands(group, path=()):
    for name, command in group.commands.items():
        yield (*path, name), command
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))


TREE = [entry for entry in commands(get_command(app)) if entry[0] != ("device",)]


@pytest.mark.parametrize(("path", "command"), TREE, ids=lambda part: " ".join(part) if isinstance(part, tuple) else "")
def test_no_word_of_an_options_help_is_lost(path, command, capsys):
    with pytest.raises(SystemExit) as end:
        get_command(app).main([*path, "--help"], prog_name="undertone", terminal_width=100)
    assert end.value.code == 0
    shown = "".join(capsys.readouterr().out.split())
    for parameter in command.params:
        assert "".join((getattr(parameter, "help", None) or "").split()) in shown


@pytest.mark.parametrize(("name", "options"), [("plan", PlanOptions), ("simulate", SimulateOptions)])
def test_a_command_has_an_option_with_its_default_for_each_field_of_its_options(name, options):
    command = get_command(app).commands[name]
    defaults = {parameter.name: parameter.default for parameter in command.params}
    assert {field.name: defaults[field.name] for field in fields(options)} == {
        field.name: field.default for field in fields(options)
    }


def test_the_shell_completes_a_command():
    environment = os.environ | {
        "_UNDERTONE_COMPLETE": "complete_bash",
        "COMP_WORDS": "undertone cer",
        "COMP_CWORD": "1",
    }
    done = subprocess.run(
        [sys.executable, "-m", "undertone"],
        capture_output=True,
        encoding="utf-8",
        timeout=240,
        env=environment,
        check=False,
    )
    assert done.stdout.split() == ["certify"]


def leaves(command, path=()):
    """Return (words, command) for each command that runs something."""
    children = getattr(command, "list_commands", None)
    if children is None:
        return [(path, command)]
    return [
        leaf for name in command.list_commands(None) for leaf in leaves(command.get_command(None, name), (*path, name))
    ]


LEAVES = {" ".join(path): command for path, command in leaves(get_command(app)) if path != ("device",)}


def test_every_command_has_two_examples_and_no_example_lacks_a_command():
    assert set(EXAMPLES) == set(LEAVES)
    for name, examples in EXAMPLES.items():
        assert len(set(examples)) == 2, name
        assert all(example in LEAVES[name].epilog for example in examples)


@pytest.mark.parametrize("name", LEAVES)
def test_an_example_is_a_correct_command_line(name):
    """All options and arguments of the example exist and have values of their types, and no required one is missing."""
    for example in EXAMPLES[name]:
        words = shlex.split(example)
        path = name.split()
        assert words[: len(path)] == path
        LEAVES[name].make_context(name, words[len(path) :])
