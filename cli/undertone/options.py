"""Command-line options from the fields of a dataclass, which alone states their names, types, defaults and help.

Errors name each option as people type it.
"""

import functools
import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import typer

from undertone_shared.errors import Invalid

# Types of an option's value. If a field allows several, the option has the one that comes first here.
_WRITTEN = (Path, str, bool, int, float)
_FIELD = re.compile(r"(campaign\.)?\b([a-z_]+)\b")
# One or more names of fields at the beginning of an error.
_FIELDS = re.compile(r"(?:campaign\.)?[a-z_]+(?:(?:, | and )[a-z_]+)*(?= cannot| is | are | needs | exclude)")


def with_typed_errors(command: Any) -> Any:
    """Return a command or group of commands whose errors begin with an option's name as people type it.

    The field late_slots or campaign.late_slots becomes --late-slots where the command has this option. A campaign's
    field keeps its name where its value can come from elsewhere: from a plan's file (--plan), or from --set.
    """
    for child in getattr(command, "commands", {}).values():
        with_typed_errors(child)
    options = {each.name: option for each in command.params for option in each.opts if option == _option(each.name)}
    settable = any("--set" in each.opts for each in command.params)
    invoke = command.invoke

    def invoke_typed(context: Any) -> Any:
        try:
            return invoke(context)
        except Invalid as wrong:
            in_plan = settable or context.params.get("plan") is not None
            sentence = _as_typed(str(wrong), options, in_plan=in_plan)
            if sentence == str(wrong):
                raise
            raise Invalid(sentence) from wrong

    command.invoke = invoke_typed
    return command


def check_picture(png: Path | None) -> None:
    """Raise Invalid if the folder of --png does not exist: an error after the run would lose the run's result."""
    if png is not None and not png.absolute().parent.is_dir():
        raise Invalid(f"--png is '{png}', expected a file in a folder that exists")


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _as_typed(sentence: str, options: Mapping[str, str], *, in_plan: bool) -> str:
    """Return the sentence with option names in place of the field names at its beginning.

    ``in_plan``: fields that begin with ``campaign.`` keep their names.
    """
    head = _FIELDS.match(sentence)
    if head is None:
        return sentence

    def typed(field: re.Match[str]) -> str:
        prefix, name = field.groups()
        return field[0] if prefix and in_plan else options.get(name, field[0])

    return _FIELD.sub(typed, head[0]) + sentence[head.end() :]


def with_options(options: type) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make a command from a function whose first argument is an ``options`` object.

    Each field ``Annotated[type, help]`` of the dataclass becomes an option. The function's other arguments become
    options and arguments of the command as usual.
    """

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        names = [field.name for field in fields(options)]

        @functools.wraps(function)
        def command(**given: Any) -> None:
            function(options(**{name: given.pop(name) for name in names}), **given)

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
        words = [_option(field.name)] if kind is bool else []
        option = typer.Option(*words, help=text)
        annotation: Any = Annotated[(kind | None if type(None) in kinds else kind, option)]
        default = inspect.Parameter.empty if field.default is MISSING else field.default
        parameters.append(
            inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        )
    return parameters
