"""Tables of options as dataclasses. Each field carries its help and its check. The sample is printed from these
fields.
"""

import dataclasses
import ipaddress
import re
import socket
import tomllib
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

from undertone_aggregator.settings.toml import toml
from undertone_shared.errors import Invalid

# Host names are labels separated by dots, perhaps with a final dot. An IPv4 address has this form, too.
_LABEL = r"[A-Za-z0-9_][A-Za-z0-9_-]{0,62}"
_NAME = re.compile(rf"(?=.{{1,253}}\Z){_LABEL}(\.{_LABEL})*\.?")
_PORT = re.compile(r"[0-9]{1,5}")
# Slots of each threshold epoch if a plan does not say: three days of half-hours.
ROUNDS = (48, 48, 48)
Check = Callable[[str, Any], Any]
Section = TypeVar("Section", bound="Checked")


def option(default: Any, explain: str, check: Check) -> Any:
    """Define an option: a dataclass field with a default, a help text, and ``check(name, value)``, which returns the
    value.

    A default of ``...`` makes the option required; None means that it may be absent.
    """
    given = {} if default is ... else {"default": default}
    return dataclasses.field(metadata={"help": explain, "check": check}, **given)


class Checked:
    """A table of options. Its values are checked when the object is made, so an invalid table cannot exist.

    ``TABLE``: its name in the file. Raises Invalid, which names the option, its value and what was expected.
    """

    TABLE: ClassVar[str]

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            if value is not None or field.default is not None:
                checked = field.metadata["check"](f"{self.TABLE}.{field.name}", value)
                # The dataclasses are frozen, so plain assignment is not possible.
                object.__setattr__(self, field.name, checked)
        self.check_together()

    @classmethod
    def completed(cls, table: dict[str, Any]) -> dict[str, Any]:
        """Return the table, with the values that some of its options set for others."""
        return table

    def check_together(self) -> None:
        """Raise Invalid for options that contradict each other."""


def tables_in(text: str, where: str) -> dict[str, Any]:
    """Return the tables of a TOML text. Raises Invalid."""
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as wrong:
        # Python refuses some valid TOML: a number of thousands of digits, or deeply nested lists.
        raise Invalid(f"{where} cannot be read as TOML: {wrong}") from None


def parse(section: type[Section], name: str, table: object) -> Section:
    """Return the section in a TOML table. Raises Invalid, which names the option, its value and what was expected."""
    if not isinstance(table, dict):
        raise Invalid(f"{name} is {table!r}, expected a table [{name}]")
    fields = {field.name: field for field in dataclasses.fields(section)}  # type: ignore[arg-type]
    table = section.completed(table)
    for key in table:
        if key not in fields:
            raise Invalid(f"[{name}] has an unknown option {key!r}, expected one of {', '.join(fields)}")
    values = {}
    for key, field in fields.items():
        if key in table:
            values[key] = table[key]
        elif field.default is dataclasses.MISSING:
            raise Invalid(f"{key} is missing in [{name}], expected {field.metadata['help']}")
    return section(**values)


def sample(section: type[Any], name: str, examples: dict[str, str]) -> str:
    """Return the table as TOML: every option with its help and default.

    ``examples``: option -> TOML, at least for options that are required or may be absent; the latter are commented out.
    """
    lines = [f"[{name}]"]
    for field in dataclasses.fields(section):
        lines.append(f"# {field.metadata['help']}")
        if field.name in examples:
            off = "# " if field.default is None else ""
            lines.append(f"{off}{field.name} = {examples[field.name]}")
        else:
            lines.append(f"{field.name} = {toml(field.default)}")
    return "\n".join(lines) + "\n"


def boolean(name: str, value: object) -> bool:
    """Check a truth value. Raises Invalid."""
    if not isinstance(value, bool):
        raise Invalid(f"{name} is {value!r}, expected true or false")
    return value


def text(name: str, value: object) -> str:
    """Check text that is not empty. Raises Invalid."""
    if not isinstance(value, str) or not value or "\0" in value:
        raise Invalid(f"{name} is {value!r}, expected text that is not empty and has no NUL")
    return value


def is_host(text: str) -> bool:
    """Return True if a text is a DNS name or an IP address, so that a resolver accepts it."""
    if ":" not in text:
        return _NAME.fullmatch(text) is not None
    try:
        return ipaddress.IPv6Address(text).scope_id is None
    except ValueError:
        return False


def host_name(name: str, value: object) -> str:
    """Check a DNS name or an IP address. Raises Invalid."""
    if not isinstance(value, str) or not is_host(value):
        raise Invalid(f"{name} is {value!r}, expected a host's name or address")
    return value


def host_names(name: str, value: object) -> tuple[str, ...]:
    """Check a list of DNS names or IP addresses. Raises Invalid."""
    if not isinstance(value, list | tuple):
        raise Invalid(f"{name} is {value!r}, expected a list of host names")
    return tuple(host_name(f"a name in {name}", item) for item in value)


def split_address(name: str, value: object) -> tuple[str, int]:
    """Split ADDRESS:PORT, with an IPv6 address in brackets, into (address, port). Raises Invalid."""
    place, _, port = value.rpartition(":") if isinstance(value, str) else ("", "", "")
    bare = place[1:-1] if place.startswith("[") and place.endswith("]") else place
    is_place = is_host(bare) and (":" in bare) == (bare != place)
    if not is_place or not _PORT.fullmatch(port) or int(port) > 65535:
        raise Invalid(f"{name} is {value!r}, expected ADDRESS:PORT such as 127.0.0.1:8080")
    return bare, int(port)


def family_of(place: tuple[str, int]) -> socket.AddressFamily:
    """Return the address family of a socket that listens at (address, port): an IPv6 address has colons."""
    return socket.AF_INET6 if ":" in place[0] else socket.AF_INET


def listen_at(name: str, value: object) -> str:
    """Check ADDRESS:PORT. Raises Invalid."""
    place, port = split_address(name, value)
    return f"[{place}]:{port}" if ":" in place else f"{place}:{port}"


def integer(low: int, high: int) -> Check:
    """Return the check for an integer in [low, high]."""

    def check(name: str, value: object) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise Invalid(f"{name} is {value!r}, expected an integer from {low} to {high}")
        return value

    return check


def choice(*words: str) -> Check:
    """Return the check for one of ``words``."""

    def check(name: str, value: object) -> str:
        if not isinstance(value, str) or value not in words:
            raise Invalid(f"{name} is {value!r}, expected one of {', '.join(words)}")
        return value

    return check
