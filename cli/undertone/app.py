"""The command tree, assembled from `undertone.commands`."""

import sys
from importlib.util import find_spec
from typing import Annotated, Any

import typer

from undertone.commands import (
    backup,
    broker,
    campaign,
    certify,
    demo,
    devices,
    export,
    fleet,
    init,
    migrate,
    plan,
    provision,
    query,
    recount,
    release,
    serve,
    simulate,
    spark,
    verify,
    web,
    worker,
)
from undertone.sentences import usage_sentence, with_suggestion
from undertone_shared.errors import Invalid, Refused

# Typer's exception for a wrong command line; Typer gives it no public name.
_Usage: Any = typer.BadParameter.__mro__[1]

app = typer.Typer(
    name="undertone",
    help="Time series from many small devices under local differential privacy, over MQTT.",
    no_args_is_help=True,
    # Markup would remove words in brackets from the help.
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


@app.callback()
def _root(version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False) -> None:
    # `undertone.__main__` handles --version, because it also works without Typer.
    pass


@app.command("device", add_help_option=False)
def _device() -> None:
    """Run a device on this machine: undertone device run|status."""


backup.register(app)
broker.register(app)
campaign.register(app)
certify.register(app)
devices.register(app)
demo.register(app)
export.register(app)
fleet.register(app)
init.register(app)
migrate.register(app)
plan.register(app)
provision.register(app)
query.register(app)
recount.register(app)
release.register(app)
serve.register(app)
simulate.register(app)
spark.register(app)
verify.register(app)
web.register(app)
worker.register(app)
if find_spec("undertone_studies") is not None:
    # A clone contains studies and benchmarks; the wheel does not.
    from undertone_studies.commands import register as register_studies

    register_studies(app)


def run() -> int:
    """Run the application; bad input is one sentence on stderr and exit code 2."""
    try:
        code = app(prog_name="undertone", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0
    except KeyboardInterrupt:
        return 130
    except typer.Abort:
        print("error: stopped because a question was not answered", file=sys.stderr)
        return 1
    except _Usage as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            error.show()
        else:
            print(f"error: {usage_sentence(error, sys.argv[1:])}", file=sys.stderr)
        return 2
    except UnicodeDecodeError as error:
        at = error.start
        print(f"error: an input file is not UTF-8 text: its byte {at} is {error.object[at]:#04x}", file=sys.stderr)
        return 2
    except (Invalid, Refused, OSError) as error:
        print(f"error: {with_suggestion(_sentence(error))}", file=sys.stderr)
        return 2


def _sentence(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return str(error)
