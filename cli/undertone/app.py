"""The command tree, assembled from `undertone.commands`: a command's module is imported when the command is used."""

import errno
import sys
import tempfile
from collections.abc import Iterable, MutableMapping
from importlib import import_module
from importlib.util import find_spec
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_group

from undertone.examples import with_examples
from undertone.options import with_typed_errors
from undertone.sentences import usage_sentence, with_suggestion
from undertone_shared.errors import Invalid, Refused

# Section of the help -> its commands; each section is for one kind of reader.
SECTIONS = {
    "Operate a server": (
        "init",
        "campaign",
        "devices",
        "join",
        "readers",
        "serve",
        "doctor",
        "capacity",
        "web",
        "worker",
        "broker",
        "authority",
        "backup",
        "restore",
        "upgrade",
        "move",
    ),
    "Run devices": ("device",),
    "Read and check results": ("query", "export", "verify", "recount", "spark"),
    "Plan and simulate": ("plan", "simulate", "demo", "fleet", "certify"),
    "Publish private numbers from raw readings that you hold": ("release",),
    "Develop Undertone": ("bench", "experiment", "reproduce"),
}
# Modules of commands that are not in `undertone.commands` under the command's name.
_ELSEWHERE = {
    "doctor": "undertone.commands.init",
    "restore": "undertone.commands.backup",
    "bench": "undertone_studies.commands.bench",
    "experiment": "undertone_studies.commands.experiment",
    "reproduce": "undertone_studies.commands.reproduce",
}
# Command -> its module, whose function ``register`` adds the command to a Typer application. The commands of studies
# and benchmarks are left out if their package is missing, because only a clone contains it.
_MODULES = {
    name: _ELSEWHERE.get(name, f"undertone.commands.{name}")
    for names in SECTIONS.values()
    for name in names
    if name != "device" and find_spec(_ELSEWHERE.get(name, "undertone").partition(".")[0]) is not None
}


class _Commands(TyperGroup):
    """The command tree, whose help groups the commands by reader and shows whole summaries."""

    @property
    def commands(self) -> MutableMapping[str, Any]:
        """All commands by name. Reading this property imports every command's module."""
        self._load(name for name in _MODULES if name not in self._loaded)
        return self._loaded

    @commands.setter
    def commands(self, loaded: MutableMapping[str, Any]) -> None:
        self._loaded = loaded

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return the command of this name, or None. Only this command's module is imported."""
        if cmd_name in _MODULES and cmd_name not in self._loaded:
            self._load([cmd_name])
        return self._loaded.get(cmd_name)

    def _load(self, names: Iterable[str]) -> None:
        part = typer.Typer(rich_markup_mode=None)
        for module in dict.fromkeys(_MODULES[name] for name in names):
            import_module(module).register(part)
        for name, each in get_group(part).commands.items():
            self._loaded[name] = with_typed_errors(with_examples(name, each))

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write a section of the help for each reader. Commands without a section come last."""
        placed = {name for names in SECTIONS.values() for name in names}
        others = {"Other commands": tuple(name for name in self.list_commands(ctx) if name not in placed)}
        for title, names in (SECTIONS | others).items():
            commands = {name: self.commands[name] for name in names if name in self.commands}
            if commands:
                with formatter.section(title):
                    formatter.write_dl(
                        [
                            (name, _summary(command.short_help or command.help or ""))
                            for name, command in commands.items()
                        ]
                    )


def _summary(text: str) -> str:
    """Return the first sentence of a command's help."""
    first = " ".join(text.strip().split("\n\n")[0].split())
    return first.split(". ")[0].rstrip(".")


# Typer's exception for a wrong command line; Typer gives it no public name.
_Usage: Any = typer.BadParameter.__mro__[1]

app = typer.Typer(
    name="undertone",
    cls=_Commands,
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
    """Run a device on this machine, or prepare one: undertone device --help lists the commands."""


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
        print("error: an input ended too early", file=sys.stderr)
        return 1
    except _Usage as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            error.show()
        else:
            print(f"error: {usage_sentence(error, sys.argv[1:])}", file=sys.stderr)
        return 2
    except UnicodeDecodeError as error:
        byte = error.object[error.start]
        print(f"error: an input file is not UTF-8 text: the byte {byte:#04x} stands in a wrong place", file=sys.stderr)
        return 2
    except (Invalid, Refused, OSError) as error:
        print(f"error: {with_suggestion(_sentence(error))}", file=sys.stderr)
        return 2


def _sentence(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return f"{error.strerror}: make room on the disk of the output, or of {tempfile.gettempdir()} (TMPDIR)"
    return str(error)
