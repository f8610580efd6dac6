"""Refusal of options that a command would otherwise ignore silently, because of its other options."""

from collections.abc import Iterable

import typer

from undertone_shared.errors import Invalid


def refuse(context: typer.Context, names: Iterable[str], where: str) -> None:
    """Raise Invalid if the command line gives one of these parameters.

    ``where``: when they are refused, such as "without --fleet".

    An option that is not on the command line, and so has its default value, is not refused.
    """
    given = [_option(context, name) for name in names if _is_given(context, name)]
    if given:
        raise Invalid(f"{', '.join(given)} cannot be given {where}")


def _is_given(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _option(context: typer.Context, name: str) -> str:
    return next(str(each.opts[0]) for each in context.command.params if each.name == name)
