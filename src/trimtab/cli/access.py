"""`trimtab access`: tokens of the API."""

import json
import time
from dataclasses import asdict

import typer

from trimtab.cli.place import place
from trimtab.cli.terminal import Json, command_group, one_of, print_rows, say
from trimtab.core import DEFAULT_TENANT, parse_duration
from trimtab.store import Role, Token

access_app = command_group("Tokens for the API. As soon as there is one, every request needs one.")


@access_app.command("make")
def make(
    name: str = typer.Argument(..., help="Its name: for whom, or for what."),
    role: str = typer.Option(
        "user",
        metavar="ROLE",
        help="viewer reads, user submits, operator runs the fleet, admin makes tokens.",
    ),
    tenant: str = typer.Option(
        DEFAULT_TENANT, metavar="NAME", help='The tenant whose objects it sees; "*" for all.'
    ),
    scope: list[str] | None = typer.Option(
        None, metavar="SCOPE", help="Only for this, such as jobs:read or jobs:write (repeat)."
    ),
    lifetime: str = typer.Option(
        "90d", "--for", metavar="DURATION", help="How long it is valid: 12h, 30d; 0 for ever."
    ),
    as_json: Json = False,
) -> None:
    """Make a token and print it. It cannot be printed again: the store keeps only a digest.

    Send it as `Authorization: Bearer TOKEN`. Its holder can use it until it expires or is revoked.
    """
    one_of("--role", role, [item.value for item in Role])
    seconds = parse_duration(lifetime) or None
    with place() as at:
        token, text = at.tokens.make(name, Role(role), tenant, scope or ["*"], seconds)
    if as_json:
        print(json.dumps({**_plain(token), "text": text}))
        return
    say(f"token {token.id} ({token.name}): {_powers(token)}; {_validity(token)}", error=True)
    print(text)


@access_app.command("ls")
def list_tokens(as_json: Json = False) -> None:
    """List tokens, newest first, without their secrets."""
    with place() as at:
        tokens = at.tokens.page(1000).items
    if as_json:
        print(json.dumps([_plain(token) for token in tokens]))
    elif not tokens:
        say("no tokens; trimtab access make NAME makes one")
    else:
        heads = ("id", "name", "tenant", "role", "scopes", "made by", "valid")
        texts = ((token.id, token.name, token.tenant, token.role.value) for token in tokens)
        rows = [
            (*text, " ".join(sorted(token.scopes)), token.by, _validity(token))
            for text, token in zip(texts, tokens, strict=True)
        ]
        print_rows(heads, rows, optional=("made by", "scopes"))


@access_app.command("revoke")
def revoke(id: str = typer.Argument(..., help="The token's id.")) -> None:
    """End a token for good; servers notice within two seconds."""
    with place() as at:
        token = at.tokens.revoke(id)
    say(f"token {token.id} ({token.name}) is revoked")


def _plain(token: Token) -> dict[str, object]:
    return {**asdict(token), "scopes": sorted(token.scopes)}


def _powers(token: Token) -> str:
    tenants = "all tenants" if token.tenant == "*" else f"the tenant {token.tenant}"
    hint = "" if token.tenant == "*" or token.role is not Role.ADMIN else ', not of all (--tenant "*")'
    return f"{token.role.value} of {tenants}{hint}"


def _validity(token: Token) -> str:
    if token.revoked is not None:
        return f"revoked {_day(token.revoked)}"
    if token.expires is None:
        return "until it is revoked"
    return f"{'until' if token.expires > time.time() else 'ended'} {_day(token.expires)}"


def _day(moment: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(moment))
