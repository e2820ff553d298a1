"""The document that describes the API."""

from functools import cache
from typing import Any

from fastapi.openapi.utils import get_openapi
from pydantic import TypeAdapter

from trimtab import __version__
from trimtab.serve.http.areas import AREAS
from trimtab.serve.http.areas.events import StreamAsked
from trimtab.serve.http.router import PROBLEMS
from trimtab.serve.problems import Problem

_ABOUT = (
    "What Trimtab keeps and does. Errors are problem+json with one sentence. Lists go on at `next`. Every "
    "POST takes an Idempotency-Key. Times are seconds since 1970; units are SI, dollars, dollars per second."
)


@cache
def document() -> dict[str, Any]:
    """OpenAPI 3.1."""
    routes = [route for area in AREAS for route in area.router.routes]
    found: dict[str, Any] = get_openapi(
        title="Trimtab", version=__version__, description=_ABOUT, routes=routes
    )
    parts = found.setdefault("components", {})
    parts.setdefault("schemas", {})["Problem"] = _problem()
    parts["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    found["security"] = [{"token": []}]
    found["paths"]["/v1/events/stream"] = {"get": _stream()}
    return found


def _problem() -> dict[str, Any]:
    schema = TypeAdapter(Problem).json_schema()
    schema["properties"]["errors"]["items"] = {"type": "object"}
    return schema


def _stream() -> dict[str, Any]:
    properties = StreamAsked.model_json_schema()["properties"]
    parameters = [{"name": name, "in": "query", "schema": schema} for name, schema in properties.items()]
    parameters.append(
        {"name": "Last-Event-ID", "in": "header", "schema": {"type": "string", "pattern": "^[0-9]{1,18}$"}}
    )
    return {
        "tags": ["events"],
        "summary": "Events as they happen",
        "description": "Server-sent events from now on, or from the last id you have seen; no end.",
        "operationId": "stream_events",
        "parameters": parameters,
        "responses": {
            "200": {
                "description": "Events",
                "content": {"text/event-stream": {"schema": {"type": "string"}}},
            },
            **{str(status): told for status, told in PROBLEMS.items()},
        },
    }
