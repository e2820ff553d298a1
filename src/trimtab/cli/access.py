"""`trimtab access`: who may ask the API for what."""

import json
import time
from typing import TYPE_CHECKING, Annotated

import typer

from trimtab.cli.options import json_option
from trimtab.cli.place import place

if TYPE_CHECKING:
    from trimtab.store import Token

access_app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="Tokens for the API: who may ask for what. Once there is one, everybody needs one.",
)

Json = Annotated[bool, json_option("Output")]


@access_app.command("make")
def make(
    name: Annotated[
        str, typer.Argument(help="What it is called: for whom, or for what.", show_default=False)
    ],
    role: Annotated[
        str, typer.Option(help="viewer looks, user submits, operator runs the fleet, admin makes tokens.")
    ] = "user",
    tenant: Annotated[str, typer.Option(help='Whose things it sees; "*" for all.')] = "default",
    scope: Annotated[
        list[str] | None,
        typer.Option(help="Only for this, such as jobs:read or jobs:write; may come several times."),
    ] = None,
    lifetime: Annotated[
        str, typer.Option("--for", metavar="DURATION", help="How long it can be used: 12h, 30d; 0 for ever.")
    ] = "90d",
    as_json: Json = False,
) -> None:
    """Make a token and print it: this once, as only a digest of it is kept.

    Send it as `Authorization: Bearer TOKEN`. Who has it can do what it is for, until it ends or is revoked.
    """
    from trimtab.core import BadInputError, did_you_mean, parse_duration
    from trimtab.store import Role

    known = [each.value for each in Role]
    if role not in known:
        raise BadInputError(
            f'"{role:.40}" is no role{did_you_mean(role, known)}; they are {", ".join(known)}'
        )
    seconds = parse_duration(lifetime) or None
    with place() as at:
        token, text = at.tokens.make(name, Role(role), tenant, scope or ["*"], seconds)
    if as_json:
        print(json.dumps({**_plain(token), "text": text}))
        return
    typer.echo(
        f"token {token.id} ({token.name}): {token.role.value} of {token.tenant}; {_until(token)}", err=True
    )
    typer.echo(text)


@access_app.command("list")
def list_tokens(as_json: Json = False) -> None:
    """List tokens, newest first, without their secrets."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    with place() as at:
        found = at.tokens.page(1000).items
    if as_json:
        print(json.dumps([_plain(token) for token in found]))
        return
    console = Console(highlight=False)
    if not found:
        console.print("no tokens; trimtab access make NAME makes one", markup=False)
        return
    table = Table(box=None, pad_edge=False)
    for column in ("id", "name", "tenant", "role", "scopes", "made by", "ends"):
        table.add_column(column, no_wrap=column == "id", overflow="fold")
    for token in found:
        texts = (token.name, token.tenant, token.role.value, " ".join(sorted(token.scopes)), token.by)
        table.add_row(token.id, *map(escape, texts), _until(token))
    console.print(table)


@access_app.command("revoke")
def revoke(id: Annotated[str, typer.Argument(help="The token's id.", show_default=False)]) -> None:
    """End a token for good; servers notice within a second or two."""
    with place() as at:
        token = at.tokens.revoke(id)
    typer.echo(f"token {token.id} ({token.name}) opens nothing any more")


def _plain(token: "Token") -> dict[str, object]:
    from dataclasses import asdict

    return {**asdict(token), "scopes": sorted(token.scopes)}


def _until(token: "Token") -> str:
    if token.revoked is not None:
        return f"revoked {_day(token.revoked)}"
    if token.expires is None:
        return "until it is revoked"
    return f"{'until' if token.expires > time.time() else 'ended'} {_day(token.expires)}"


def _day(moment: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(moment))
