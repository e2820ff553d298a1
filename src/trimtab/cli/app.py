"""The root command: the table of subcommands, and one sentence for every error."""

import errno
import os
import signal
import sys
import threading
from importlib import import_module
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from trimtab import __version__
from trimtab.cli.place import server_of, use_server
from trimtab.cli.terminal import warn
from trimtab.core import BadInputError, TrimtabError

COMMANDS = {
    "profile": ("profile:profile_app", "Run a command and measure what it uses: CPU, memory, model, steps."),
    "recommend": ("recommend:recommend", "Rank configurations to rent, with time, cost, ranges and reasons."),
    "tune": ("tune:tune", "Find the configuration to rent for a workload, by a few short trials."),
    "predict": ("predict:predict", "Predict time and cost elsewhere, from one to three runs."),
    "partition": ("partition:partition", "Split a model over devices: which layers go where, and why."),
    "pipeline": ("pipeline:pipeline", "Size each stage of a pipeline: CPU, memory and accelerators."),
    "decisions": ("decisions:decisions", "List the ledger's decisions, or show one."),
    "outcome": ("decisions:outcome", "Record the measured result of a decision."),
    "submit": ("jobs:submit", "Submit the jobs of a file; trimtab up runs them."),
    "jobs": ("jobs:jobs", "List jobs, newest first: state, run time, cost, and the reason for the state."),
    "queue": ("jobs:queue", "Why does my job wait, and when will it start?"),
    "logs": ("jobs:logs", "Print the output of a job's current or last run."),
    "cancel": ("jobs:cancel", "End jobs that wait or run."),
    "simulate": ("simulate:simulate", "Replay a trace under one policy or several, and compare them."),
    "tenants": ("tenants:tenants_app", "Tenants with their guarantees, limits and weights."),
    "store": ("store:store_app", "Back up, restore, check and describe the store."),
    "agent": (
        "agent:agent_app",
        "Resize the containers of this node every 100 ms to the CPU and memory they use.",
    ),
    "fabric": ("fabric:fabric_app", "Training traffic that survives a dead link, network card or switch."),
    "up": ("up:up", "Run the system: scheduler, API, dashboard, and the controller of pools."),
    "access": ("access:access_app", "Tokens for the API, with a role and a tenant each."),
    "token": ("up:token", "Print a token with which one more node can join the controller on this machine."),
    "top": ("agent:top", "Show limit, use and slack of containers, live."),
    "doctor": ("config:doctor", "Check this machine: what is missing, what that disables, how to fix it."),
    "demo": ("demo:demo", "Fill the store with a real small run: a profile, a recommendation, two jobs."),
    "config": ("config:config_app", "Show the settings of trimtab up, and where each comes from."),
    "bench": ("bench:bench", "Measure what the documentation claims."),
    "calibrate": ("calibrate:calibrate", "Fit the estimator's constants to measured steps."),
    "catalog": ("catalog:catalog_app", "Offers and accelerators: hardware facts and prices."),
    "collect": ("collect:collect_app", "Measure a data set for the models to learn from, on this machine."),
    "models": ("models:models_app", "The learned models: their training data and their errors."),
}
"""Module and function or group of each command, and its line in the help.

A module is imported only when its command runs.
"""

_HELP = ["-h", "--help"]


class Commands(TyperGroup):
    """Lists all commands without importing any; imports one when it is called."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        for name, (_, summary) in COMMANDS.items():
            self.add_command(TyperCommand(name, short_help=summary))

    def get_params(self, ctx: Any) -> list[Any]:
        return _hide_types_of_flags(super().get_params(ctx))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that `args` begin with, its own arguments after it."""
        name, listed, rest = super().resolve_command(ctx, args)
        return name, load_command(name) if name else listed, rest


def load_command(name: str) -> Any:
    """Import a command of the table."""
    module, _, attribute = COMMANDS[name][0].partition(":")
    app = getattr(import_module(f"trimtab.cli.{module}"), attribute)
    if not isinstance(app, typer.Typer):
        function, app = app, typer.Typer(rich_markup_mode="markdown", add_completion=False)
        app.command(name)(function)
    command = typer.main.get_command(app)
    command.name = name
    for shown in (command, *getattr(command, "commands", {}).values()):
        _hide_types_of_flags(shown.get_params(typer.Context(shown, help_option_names=_HELP)))
    return command


def _hide_types_of_flags(options: list[Any]) -> list[Any]:
    """Let the help show `--spot`, not `--spot <bool>`."""
    for option in options:
        if getattr(option, "is_flag", False):
            option.metavar = ""
    return options


app = typer.Typer(
    name="trimtab",
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": _HELP},
)


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    version: bool = typer.Option(False, "--version", help="Print the version and exit."),
    server: str | None = typer.Option(
        None,
        metavar="URL",
        envvar="TRIMTAB_SERVER",
        help="URL of a running `trimtab up` to use instead of the local store.",
    ),
    token_file: Path | None = typer.Option(
        None, metavar="FILE", help="A file with the token for that server; default: $TRIMTAB_TOKEN."
    ),
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
    chosen = server_of(server, token_file, token, context.invoked_subcommand) if server else None
    if chosen is None:
        os.environ.pop("TRIMTAB_SERVER", None)  # processes that the command starts use this machine too
    use_server(chosen)


def main() -> None:
    """Run the command; a foreseen error is one sentence on standard error and its own exit status."""
    sys.unraisablehook = _interrupt_again
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
        _fail(f"cannot write{where}: {(error.strerror or str(error)).lower()}; nothing was written", 2)


def _interrupt_again(swallowed: "sys.UnraisableHookArgs") -> None:
    """Repeat a Ctrl-C that arrived in a finalizer or weak-reference callback, which swallow exceptions."""
    if issubclass(swallowed.exc_type, KeyboardInterrupt):
        # From another thread and a little later: here the signal would be swallowed again.
        threading.Timer(0.02, os.kill, (os.getpid(), signal.SIGINT)).start()
    else:
        sys.__unraisablehook__(swallowed)


def _fail(message: str, status: int) -> None:
    warn(message)
    sys.exit(status)
