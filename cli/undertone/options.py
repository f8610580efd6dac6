"""Command-line options from the fields of a dataclass, which alone states their names, types, defaults and help."""

import functools
import inspect
import re
from collections.abc import Callable, Iterable
from dataclasses import MISSING, fields
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import typer

from undertone_shared.errors import Invalid

# Types that a command line can give. Of several that a field allows, the first of this list is used.
_WRITTEN = (Path, str, bool, int, float)
_FIELD = re.compile(r"(campaign\.)?\b([a-z_]+)\b")
# The fields with which an error begins.
_FIELDS = re.compile(r"(?:campaign\.)?[a-z_]+(?:(?:, | and )[a-z_]+)*(?=: not| is | are | exclude)")


def as_typed(sentence: str, names: Iterable[str], *, in_plan: bool = False) -> str:
    """Return an error that names the options as people type them: --late-slots where it has campaign.late_slots.

    ``names``: the fields that are options. ``in_plan``: fields of ``campaign`` come from a file, and stay as they are.
    """
    head = _FIELDS.match(sentence)
    if head is None:
        return sentence

    def option(field: re.Match[str]) -> str:
        prefix, name = field.groups()
        return field[0] if name not in names or (prefix and in_plan) else f"--{name.replace('_', '-')}"

    return _FIELD.sub(option, head[0]) + sentence[head.end() :]


def with_options(options: type) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make a command from a function whose first argument is an ``options`` object.

    Each field ``Annotated[type, help]`` of the dataclass becomes an option. The function's other arguments become
    options and arguments of the command as usual.
    """

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        names = [field.name for field in fields(options)]

        @functools.wraps(function)
        def command(**given: Any) -> None:
            in_plan = given.get("plan") is not None
            try:
                function(options(**{name: given.pop(name) for name in names}), **given)
            except Invalid as wrong:
                raise Invalid(as_typed(str(wrong), names, in_plan=in_plan)) from wrong

        own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]
        parameters = [*_parameters(options), *(each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in own)]
        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        command.__annotations__ = {each.name: each.annotation for each in parameters}
        del command.__wrapped__
        return command

    return decorate


def _parameters(options: type) -> list[inspect.Parameter]:
    hints = get_type_hints(options, include_extras=True)
    parameters = []
    for field in fields(options):
        allowed, text = get_args(hints[field.name])
        kinds = get_args(allowed) if get_origin(allowed) in (Union, UnionType) else (allowed,)
        kind: Any = next(each for each in _WRITTEN if each in kinds)
        # A flag is off unless it is given, so it needs no opposite such as --no-json.
        words = [f"--{field.name.replace('_', '-')}"] if kind is bool else []
        option = typer.Option(*words, help=text)
        annotation: Any = Annotated[(kind | None if type(None) in kinds else kind, option)]
        default = inspect.Parameter.empty if field.default is MISSING else field.default
        parameters.append(
            inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        )
    return parameters
