"""The command's root: which subcommands there are, and how every error becomes one sentence."""

import errno
import os
import sys
from pathlib import Path

import typer

from trimtab import __version__
from trimtab.cli.access import access_app
from trimtab.cli.agent import agent_app, top
from trimtab.cli.bench import bench
from trimtab.cli.calibrate import calibrate
from trimtab.cli.catalog import catalog_app
from trimtab.cli.collect import collect_app
from trimtab.cli.config import config_app
from trimtab.cli.decisions import decisions, outcome
from trimtab.cli.demo import demo
from trimtab.cli.doctor import doctor
from trimtab.cli.fabric import fabric_app
from trimtab.cli.jobs import cancel, jobs, logs, queue
from trimtab.cli.models import models_app
from trimtab.cli.partition import partition
from trimtab.cli.pipeline import pipeline
from trimtab.cli.place import ask, server_of
from trimtab.cli.predict import predict
from trimtab.cli.profile import profile
from trimtab.cli.recommend import recommend
from trimtab.cli.simulate import simulate
from trimtab.cli.store import store_app
from trimtab.cli.submit import submit
from trimtab.cli.tenants import tenants_app
from trimtab.cli.tune import tune
from trimtab.cli.up import token, up
from trimtab.cli.warning import warn
from trimtab.core import BadInputError, TrimtabError

app = typer.Typer(
    name="trimtab",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    version: bool = typer.Option(False, "--version", help="Print the version and exit."),
    server: str | None = typer.Option(
        None,
        "--server",
        metavar="URL",
        envvar="TRIMTAB_SERVER",
        help="Ask the `trimtab up` at this URL instead of the store here.",
        show_default=False,
    ),
    token_file: Path | None = typer.Option(
        None,
        "--token-file",
        metavar="FILE",
        help="A file with the token for it; else $TRIMTAB_TOKEN.",
        show_default=False,
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
    asked = server_of(server, token_file, token, context.invoked_subcommand) if server else None
    if asked is None:
        os.environ.pop("TRIMTAB_SERVER", None)  # what the command starts is for this machine too
    ask(asked)


app.command(
    options_metavar="[OPTIONS] -- COMMAND...",
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
)(profile)
app.command()(recommend)
app.command()(tune)
app.command()(predict)
app.command()(partition)
app.command()(pipeline)
app.command()(decisions)
app.command()(outcome)
app.command()(submit)
app.command()(jobs)
app.command()(queue)
app.command()(logs)
app.command()(cancel)
app.command()(simulate)
app.add_typer(tenants_app, name="tenants")
app.add_typer(store_app, name="store")
app.add_typer(agent_app, name="agent")
app.add_typer(fabric_app, name="fabric")
app.command()(up)
app.add_typer(access_app, name="access")
app.command()(token)
app.command()(top)
app.command()(doctor)
app.command()(demo)
app.add_typer(config_app, name="config")
app.command()(bench)
app.command()(calibrate)
app.add_typer(catalog_app, name="catalog")
app.add_typer(collect_app, name="collect")
app.add_typer(models_app, name="models")


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
