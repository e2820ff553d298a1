"""/v1/tokens: who may ask for what."""

from dataclasses import asdict
from typing import Annotated, Any

from fastapi import Query
from pydantic import Field

from trimtab.serve.encoding import encoded
from trimtab.serve.http.answer import Answer, json_answer, plain_page
from trimtab.serve.http.route import Effect
from trimtab.serve.http.router import Caller, PageAsked, PageOf, Router, Told
from trimtab.store import Page, Role, Token

router = Router("tokens")
_YEARS = 20 * 366 * 86400.0


class TokenGiven(Told):
    """A token to make; `lifetime` in seconds, null until it is revoked. It can do no more than yours."""

    name: str = Field(min_length=1, max_length=100)
    role: Role = Role.VIEWER
    tenant: str | None = None
    scopes: list[str] = Field(["*"], min_length=1, max_length=100)
    lifetime: float | None = Field(None, gt=0, le=_YEARS)


class ShownToken(Told):
    """A token without its secret; times in seconds since 1970."""

    id: str
    name: str
    tenant: str
    role: Role
    scopes: list[str]
    created: float
    expires: float | None
    revoked: float | None
    by: str


class NewToken(ShownToken):
    """A token with its text, which is shown this once: the answer to a repeated request has none."""

    text: str | None


@router.reads("/tokens", PageOf[ShownToken])
def list_tokens(call: Caller, query: Annotated[PageAsked, Query()]) -> Answer:
    """Tokens, newest first; for admins."""
    page = call.service.tokens.page(query.limit, query.after)
    return plain_page(call.scope, Page(tuple(map(_shown, page.items)), page.next))


@router.makes("/tokens", NewToken)
def make_token(call: Caller, body: TokenGiven) -> Effect:
    """Make a token."""
    tokens = call.service.tokens

    def effect() -> Answer:
        made, text = tokens.make(body.name, body.role, body.tenant, body.scopes, body.lifetime)
        answer = json_answer({**_shown(made), "text": text}, 201)
        # What is kept for a repetition must not hold the secret.
        return Answer(answer.status, answer.body, answer.headers, encoded({**_shown(made), "text": None}))

    return effect


@router.reads("/tokens/{id}", ShownToken, tagged=True)
def get_token(call: Caller, id: str) -> Answer:
    """One token."""
    return json_answer(_shown(call.service.tokens.get(id)), tagged=True)


@router.removes("/tokens/{id}", ShownToken)
def revoke_token(call: Caller, id: str) -> Effect:
    """End a token for good."""
    tokens = call.service.tokens
    return lambda: json_answer(_shown(tokens.revoke(id)))


def _shown(token: Token) -> dict[str, Any]:
    return {**asdict(token), "scopes": sorted(token.scopes)}
