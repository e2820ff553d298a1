"""The command's root: the table of subcommands, and how every error becomes one sentence."""

import errno
import os
import sys
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from trimtab import __version__
from trimtab.cli.place import server_of, use_server
from trimtab.cli.terminal import warn
from trimtab.core import BadInputError, TrimtabError

COMMANDS = {
    "profile": (
        "profile:profile_app",
        "Run a command and write down what it uses: CPU, memory, model, steps.",
    ),
    "recommend": ("recommend:recommend", "Rank configurations to rent, with time, cost, ranges and reasons."),
    "tune": ("tune:tune", "Find the configuration to rent for a training job, by a few short trials of it."),
    "predict": ("predict:predict", "Predict time and cost elsewhere, from one to three runs."),
    "partition": ("partition:partition", "Split a model over devices: which layers go where, and why."),
    "pipeline": ("pipeline:pipeline", "Size each stage of a pipeline: CPU, memory and accelerators."),
    "decisions": ("decisions:decisions", "List the ledger's decisions, or show one."),
    "outcome": ("decisions:outcome", "Record what really happened after a decision."),
    "submit": ("jobs:submit", "Submit the jobs of a file; trimtab up runs them."),
    "jobs": ("jobs:jobs", "List jobs, newest first: where they stand, what they have used, and why."),
    "queue": ("jobs:queue", "Why does my job wait, and when will it start?"),
    "logs": ("jobs:logs", "Print what a job's present or last run has written."),
    "cancel": ("jobs:cancel", "End jobs, whether they wait or run."),
    "simulate": ("simulate:simulate", "Replay a trace under one policy or several, and compare them."),
    "tenants": ("tenants:tenants_app", "List tenants with their guarantees, limits and weights."),
    "store": ("store:store_app", "Back up, restore, check and describe the store."),
    "agent": (
        "agent:agent_app",
        "Give the containers of this node the CPU and memory they use, every 100 ms.",
    ),
    "fabric": ("fabric:fabric_app", "Training traffic that survives a dead link, network card or switch."),
    "up": ("up:up", "Run the system: scheduler, API, dashboard, and the controller of pools."),
    "access": ("access:access_app", "Tokens for the API: who may do what."),
    "token": ("up:token", "Print a token that lets one more node join the controller which runs here."),
    "top": ("agent:top", "Show limit, use and slack of containers, live."),
    "doctor": ("config:doctor", "Check this machine: what is missing, what that disables, how to mend it."),
    "demo": ("demo:demo", "Fill the store with a real small run: a profile, a recommendation, two jobs."),
    "config": ("config:config_app", "Show how trimtab up is set, and by what."),
    "bench": ("bench:bench", "Measure what the documentation claims."),
    "calibrate": ("calibrate:calibrate", "Fit the estimator's constants to measured steps."),
    "catalog": ("catalog:catalog_app", "What can be rented, what it is made of, what it costs."),
    "collect": ("collect:collect_app", "Measure a data set for the models to learn from, on this machine."),
    "models": ("models:models_app", "The learned models: what they come from, how good they are."),
}
"""By name: the function or group in a module of this package, and a line for the help.

A module is imported when its command runs, so that every other command starts without it.
"""


class Commands(TyperGroup):
    """Lists all commands without importing any; imports one when it is called."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        for name, (_, summary) in COMMANDS.items():
            self.add_command(TyperCommand(name, short_help=summary))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that `args` begin with, its own arguments after it."""
        name, listed, rest = super().resolve_command(ctx, args)
        return name, load_command(name) if name else listed, rest


def load_command(name: str) -> Any:
    """Import a command of the table."""
    module, _, attribute = COMMANDS[name][0].partition(":")
    found = getattr(import_module(f"trimtab.cli.{module}"), attribute)
    if not isinstance(found, typer.Typer):
        function, found = found, typer.Typer(rich_markup_mode="markdown", add_completion=False)
        found.command(name)(function)
    command = typer.main.get_command(found)
    command.name = name
    return command


app = typer.Typer(
    name="trimtab",
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
    server: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            envvar="TRIMTAB_SERVER",
            help="Ask the `trimtab up` at this URL instead of the store here.",
        ),
    ] = None,
    token_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A file with the token for it; else $TRIMTAB_TOKEN.")
    ] = None,
) -> None:
    """Measure a deep-learning workload, predict it on any hardware a cloud sells, rent the right thing.

    Start with `trimtab profile -- python train.py`, then `trimtab recommend`.
    """
    if version:
        print(f"trimtab {__version__}")
        raise typer.Exit
    if token_file is not None and not server:
        raise BadInputError("--token-file is for a server; name it with --server URL")
    token = os.environ.get("TRIMTAB_TOKEN", "")
    named = server_of(server, token_file, token, context.invoked_subcommand) if server else None
    if named is None:
        os.environ.pop("TRIMTAB_SERVER", None)  # what the command starts is for this machine too
    use_server(named)


def main() -> None:
    """Run the command; a foreseen error is one sentence on standard error and its own exit status."""
    try:
        app()
    except TrimtabError as error:
        _fail(str(error), error.exit_status)
    except KeyboardInterrupt:
        _fail("interrupted", 130)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(0)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EPERM, errno.EDQUOT):
            raise
        where = f" {error.filename}" if error.filename else ""
        _fail(f"cannot write{where}: {(error.strerror or str(error)).lower()}; nothing was kept", 2)


def _fail(message: str, status: int) -> None:
    warn(message)
    sys.exit(status)
