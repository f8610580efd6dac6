"""Each text that lists the names of a table must list all of them; the error names those that are forgotten."""

import ast
import dataclasses
import re
from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any, get_type_hints

import pytest

from support.micropython import REPO
from undertone.commands import certify, fleet, web, worker
from undertone.stores import STORE_HELP
from undertone_aggregator.design.named import STREAMS, certified_names, reporting_names
from undertone_aggregator.estimate.formats import FORMATS
from undertone_aggregator.settings.config import CampaignPlan
from undertone_aggregator.settings.report_sources import SOURCES
from undertone_aggregator.settings.server_options import StoreOptions
from undertone_aggregator.store.store_address import KINDS as STORES
from undertone_device.host import sources
from undertone_simulator.fast.options import SimulateOptions
from undertone_simulator.planning.options import PlanOptions
from undertone_simulator.readings.options import FleetOptions
from undertone_simulator.readings.populations import POPULATIONS


def help_of(section: type, name: str) -> str:
    """The help text of an option, from its field or from its annotation."""
    fields = {field.name: field for field in dataclasses.fields(section)}
    if "help" in fields[name].metadata:
        return str(fields[name].metadata["help"])
    return " ".join(get_type_hints(section, include_extras=True)[name].__metadata__)


def help_of_argument(command: Callable[..., Any], name: str) -> str:
    return str(get_type_hints(command, include_extras=True)[name].__metadata__[0].help)


def text_of(page: str, first: str) -> str:
    """The text of a page, from the line with ``first`` to the next empty line."""
    text = (REPO / page).read_text(encoding="utf-8")
    return text[text.index(first) :].partition("\n\n")[0]


def stores() -> list[str]:
    """The words by which people name the kinds of store: "file", or the scheme of a URL with its colon."""
    return ["file" if kind == "sqlite" else f"{kind}:" for kind in STORES]


# A text that people read -> the names that it must have.
LISTS: dict[str, tuple[str, Callable[[], Iterable[str]]]] = {
    "--mechanism of cli/undertone/commands/certify.py": (certify.NAMES, certified_names),
    "mechanism of settings/config.py": (help_of(CampaignPlan, "mechanism"), reporting_names),
    "mechanism of undertone_simulator/planning/options.py": (help_of(PlanOptions, "mechanism"), reporting_names),
    "mechanism of undertone_simulator/fast/options.py": (
        help_of(SimulateOptions, "mechanism"),
        lambda: [*reporting_names(), *STREAMS],
    ),
    "STORE_HELP of cli/undertone/stores.py": (STORE_HELP, stores),
    "stores of cli/undertone/commands/web.py": (help_of_argument(web.web, "stores"), stores),
    "path of settings/server_options.py": (help_of(StoreOptions, "path"), stores),
    "--store of cli/undertone/commands/worker.py": (
        help_of_argument(worker.worker, "store"),
        lambda: [f"{kind}:" for kind in STORES if STORES[kind].shared],
    ),
    "--population of cli/undertone/commands/fleet.py": (
        help_of_argument(fleet.fleet, "population"),
        lambda: POPULATIONS,
    ),
    "population of undertone_simulator/readings/options.py": (
        help_of(FleetOptions, "population"),
        lambda: POPULATIONS,
    ),
    "the table of docs/simulation.md": (
        (REPO / "docs/simulation.md").read_text(encoding="utf-8").partition("## Populations")[2].partition("**Add")[0],
        lambda: [f"`{name}`" for name in POPULATIONS],
    ),
    "`format` in docs/api.md": (text_of("docs/api.md", "| `format` |"), lambda: FORMATS),
    "undertone query in aggregator/README.md": (
        text_of("aggregator/README.md", "undertone query undertone.sqlite --since"),
        lambda: FORMATS,
    ),
    "[broker] mode in aggregator/README.md": (text_of("aggregator/README.md", "| mode |"), lambda: SOURCES),
    "docs/sensors.md": (
        (REPO / "docs/sensors.md").read_text(encoding="utf-8").replace("`", '"'),
        lambda: [f'"{kind}"' for kind in sources.kinds()],
    ),
}


def lacking(text: str, names: Iterable[str]) -> list[str]:
    """The names that a text lacks.

    A part of a longer word does not count as the name. The colon of "memory:" ends a word.
    """

    def has(name: str) -> bool:
        end = "" if name.endswith(":") else r"(?![\w-])"
        return re.search(rf"(?<![\w-]){re.escape(name)}{end}", text, re.I) is not None

    return [name for name in names if not has(name)]


@pytest.mark.parametrize("place", LISTS)
def test_a_list_for_people_has_every_name_of_its_table(place: str) -> None:
    text, names = LISTS[place]
    assert lacking(text, names()) == [], f"add the name to {place}"


def test_a_name_that_a_list_lacks_is_found() -> None:
    assert lacking("one of piecewise-optimal or hybrid.", ["hybrid", "piecewise", "laplace"]) == [
        "piecewise",
        "laplace",
    ]
    assert lacking("a file, memory:NAME or postgresql://host", ["memory:", "postgresql:", "sql:"]) == ["sql:"]


# Each line of a table that names a module and a name in it: "table, name" -> (module, name).
NAMED = {
    **{f"FORMATS, {name}": (each.module, each.function) for name, each in FORMATS.items()},
    **{f"KINDS of store/store_address.py, {name}": (each.module, each.opener) for name, each in STORES.items()},
    **{f"SOURCES, {name}": (each.module, each.opener) for name, each in SOURCES.items()},
}


@pytest.mark.parametrize("line", NAMED)
def test_a_line_of_a_table_names_what_is_there(line: str) -> None:
    module, member = NAMED[line]
    assert callable(getattr(import_module(module), member))


def test_every_module_that_describes_sources_is_named() -> None:
    folder = REPO / "device/undertone_device/host/sources"
    describing = [
        path.stem
        for path in sorted(folder.glob("*.py"))
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "KINDS"
    ]
    assert describing == sorted(sources.MODULES), "add the module to MODULES of host/sources/__init__.py"


def test_every_population_is_named() -> None:
    folder = REPO / "simulator/undertone_simulator/readings/populations"
    names = [
        ast.literal_eval(line.value)
        for path in sorted(folder.glob("*.py"))
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef)
        for line in node.body
        if isinstance(line, ast.Assign) and getattr(line.targets[0], "id", "") == "name"
    ]
    assert sorted(names) == sorted(POPULATIONS), "add the class to _KINDS of populations/__init__.py"


def used(name: str, sources: Iterable[str]) -> bool:
    """True if a source imports the module with this dotted name, or contains the name."""
    package, _, module = name.rpartition(".")
    imports = rf"from {re.escape(package)} import (\([^)]*|[^\n]*)\b{module}\b"
    found = re.compile(rf"\b{re.escape(name)}\b|{imports}")
    # Most sources do not contain the word at all, and `in` finds this out much faster than the pattern.
    return any(module in source and found.search(source) for source in sources)


def test_every_module_of_the_server_is_used_or_in_a_table() -> None:
    """If the line of a module in a table is forgotten, nobody can use the module."""
    sources = {
        path: path.read_text(encoding="utf-8")
        for folder in ("aggregator", "cli", "simulator", "scripts")
        for path in (REPO / folder).rglob("*.py")
    }
    root = REPO / "aggregator"
    unused = [
        str(path.relative_to(root))
        for path in sorted(root.rglob("*.py"))
        if not path.name.startswith("__")
        and not used(
            ".".join(path.relative_to(root).with_suffix("").parts),
            (text for file, text in sources.items() if file != path),
        )
    ]
    assert unused == [], "nothing imports it, and no table names it"
