"""Refusal of options that a command would not use beside the other options: it must not ignore them silently."""

from collections.abc import Iterable

import typer

from undertone_shared.errors import Invalid


def refuse(context: typer.Context, names: Iterable[str], where: str) -> None:
    """Raise Invalid if the command line gives one of these parameters.

    ``where`` says when: "without --fleet", for example.

    An option that has its default value because nobody gave it is not refused.
    """
    given = [_option(context, name) for name in names if _is_given(context, name)]
    if given:
        raise Invalid(f"{', '.join(given)}: not an option {where}")


def _is_given(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _option(context: typer.Context, name: str) -> str:
    return next(str(each.opts[0]) for each in context.command.params if each.name == name)
