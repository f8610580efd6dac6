"""TOML as the server and its commands write it. `undertone_aggregator.settings.options.tables_in` reads it."""

from collections.abc import Mapping
from typing import Any

import tomlkit
from tomlkit.exceptions import TOMLKitError


def toml(value: Any) -> str:
    """Return a value, a text, number, truth value or sequence of them, as TOML."""
    return str(tomlkit.item(list(value) if isinstance(value, tuple) else value).as_string())


def document(tables: Mapping[str, Mapping[str, Any]]) -> str:
    """Return tables of options as a TOML document."""
    return tomlkit.dumps(tables)


def with_option(text: str, table: str, name: str, value: Any) -> str:
    """Set one option of a TOML document, and leave everything else as it is, comments too. The table must exist."""
    return with_options(text, table, {name: value})


def with_options(text: str, table: str, options: Mapping[str, Any]) -> str:
    """Set several options of a table, as `with_option` does; None removes one."""
    parsed: Any = tomlkit.parse(text)
    for name, value in options.items():
        if value is None:
            parsed[table].pop(name, None)
        else:
            parsed[table][name] = value
    return tomlkit.dumps(parsed)


def value_in(text: str, table: str, name: str) -> Any:
    """Return the value of an option in a TOML document, None if it is absent."""
    return tomlkit.parse(text).unwrap().get(table, {}).get(name)


def value_of(text: str) -> Any:
    """Parse one line as a TOML value. Text of several lines, and text that is no value (24h), is returned unchanged."""
    try:
        return tomlkit.parse(f"value = {text}").unwrap()["value"] if "\n" not in text else text
    except (TOMLKitError, RecursionError):
        return text
