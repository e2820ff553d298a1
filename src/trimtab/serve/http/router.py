"""How an area's routes are written down, and what OpenAPI says of all of them."""

from collections.abc import Callable
from typing import Annotated, Any, Generic, TypeVar

from fastapi import APIRouter, Depends
from pydantic import BaseModel, ConfigDict, Field

from trimtab.serve.http.call import Call
from trimtab.serve.http.query import Asked
from trimtab.serve.http.route import Route
from trimtab.serve.problems import MEDIA_TYPE

T = TypeVar("T")
Handler = TypeVar("Handler", bound=Callable[..., Any])

MOST = 500
"""Items of a page."""


def _problem(says: str) -> dict[str, Any]:
    schema = {"$ref": "#/components/schemas/Problem"}
    return {"description": says, "content": {MEDIA_TYPE: {"schema": schema}}}


PROBLEMS: dict[int | str, dict[str, Any]] = {
    "4XX": _problem("The request cannot be carried out; the sentence says why."),
    "5XX": _problem("It could, but something here failed."),
}
_KEY = {
    "name": "Idempotency-Key",
    "in": "header",
    "description": "The same key with the same request, within a day, is answered alike and does nothing.",
    "schema": {"type": "string", "minLength": 1, "maxLength": 200},
}
_SEEN = {"in": "header", "schema": {"type": "string"}}
IF_MATCH = {**_SEEN, "name": "If-Match", "description": "The ETag of what is to be changed."}
IF_NONE_MATCH = {**_SEEN, "name": "If-None-Match", "description": "The ETag of what you have; * for none."}

Caller = Annotated[Call, Depends(lambda: None)]
"""The request of somebody known; see `Route`."""


class PageOf(BaseModel, Generic[T]):
    """Some of what was asked for; `next` is the `after` of the page that follows, null at the end."""

    items: list[T]
    next: str | None


class PageAsked(Asked):
    """How much, and from where on."""

    limit: int = Field(50, ge=1, le=MOST, description="Items of the page.")
    after: str | None = Field(None, max_length=200, description="What the page before has under next.")


class Told(BaseModel):
    """Base of bodies: exactly what is known, of exactly its type."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Router(APIRouter):
    """The routes of an area under /v1."""

    def __init__(self, name: str) -> None:
        super().__init__(prefix="/v1", tags=[name], route_class=Route)

    def reads(self, path: str, answer: Any, tagged: bool = False) -> Callable[[Handler], Handler]:
        """GET; `tagged` answers have an ETag."""
        extra = {"parameters": [IF_NONE_MATCH]} if tagged else None
        more: dict[int | str, dict[str, Any]] = {304: {"description": "You have it."}} if tagged else {}
        return self._route("GET", path, answer, 200, extra, more)

    def makes(
        self, path: str, answer: Any, status: int = 201, conditional: bool = False
    ) -> Callable[[Handler], Handler]:
        """POST, once for each key; of a state that the caller may name where that is `conditional`."""
        parameters = [_KEY, IF_MATCH] if conditional else [_KEY]
        return self._route("POST", path, answer, status, {"parameters": parameters})

    def edits(self, path: str, answer: Any) -> Callable[[Handler], Handler]:
        """PUT, of a state that the caller names."""
        return self._route("PUT", path, answer, 200, {"parameters": [IF_MATCH, IF_NONE_MATCH]})

    def removes(self, path: str, answer: Any, conditional: bool = False) -> Callable[[Handler], Handler]:
        """DELETE, of a state that the caller names where that is `conditional`."""
        extra = {"parameters": [IF_MATCH]} if conditional else None
        return self._route("DELETE", path, answer, 200, extra)

    def _route(
        self,
        method: str,
        path: str,
        answer: Any,
        status: int,
        extra: dict[str, Any] | None,
        more: dict[int | str, dict[str, Any]] | None = None,
    ) -> Callable[[Handler], Handler]:
        return self.api_route(
            path,
            methods=[method],
            response_model=answer,
            status_code=status,
            openapi_extra=extra,
            responses={**(more or {}), **PROBLEMS},
        )
