"""`trimtab access`: who may ask the API for what."""

import json
import time
from dataclasses import asdict
from typing import Annotated

import typer
from rich.markup import escape

from trimtab.cli.options import Json, command_group
from trimtab.cli.place import place
from trimtab.cli.terminal import new_table, one_of, print_table, say
from trimtab.core import parse_duration
from trimtab.store import Role, Token

access_app = command_group(
    "Tokens for the API: who may ask for what. Once there is one, everybody needs one."
)


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
    known = tuple(each.value for each in Role)
    one_of("--role", role, known)
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
    with place() as at:
        found = at.tokens.page(1000).items
    if as_json:
        print(json.dumps([_plain(token) for token in found]))
        return
    if not found:
        say("no tokens; trimtab access make NAME makes one")
        return
    shown = new_table("<id", "name", "tenant", "role", "scopes", "made by", "ends")
    for token in found:
        texts = (token.name, token.tenant, token.role.value, " ".join(sorted(token.scopes)), token.by)
        shown.add_row(token.id, *map(escape, texts), _until(token))
    print_table(shown)


@access_app.command("revoke")
def revoke(id: Annotated[str, typer.Argument(help="The token's id.", show_default=False)]) -> None:
    """End a token for good; servers notice within a second or two."""
    with place() as at:
        token = at.tokens.revoke(id)
    typer.echo(f"token {token.id} ({token.name}) opens nothing any more")


def _plain(token: Token) -> dict[str, object]:
    return {**asdict(token), "scopes": sorted(token.scopes)}


def _until(token: Token) -> str:
    if token.revoked is not None:
        return f"revoked {_day(token.revoked)}"
    if token.expires is None:
        return "until it is revoked"
    return f"{'until' if token.expires > time.time() else 'ended'} {_day(token.expires)}"


def _day(moment: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(moment))
