"""From a path to its route by looking it up: trying forty patterns costs more than a small answer."""

import re
from collections.abc import Iterable
from typing import Any, Protocol

from trimtab.serve.http.answer import failed, reply
from trimtab.serve.problems import HttpError

_PARAMETER = re.compile(r"\{(\w+)\}")
_ANY = "{}"
_OURS = "/v1/"


class Routed(Protocol):
    """Something that answers certain methods of a path."""

    path: str
    methods: Any

    async def serve(self, scope: Any, receive: Any, send: Any) -> None: ...


class Switch:
    """Passes requests to the route of their path, others to `rest`; what is under /v1 is nobody else's.

    `shared` is what routes find in the scope under trimtab.parts.
    """

    def __init__(self, routes: Iterable[Routed], shared: Any, rest: Any = None) -> None:
        self._shared = shared
        self._rest = rest
        self._routes: dict[tuple[str, ...], dict[str, tuple[Routed, dict[str, int]]]] = {}
        self._masks: dict[int, list[tuple[int, ...]]] = {}
        for route in routes:
            self._add(route)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        found = self._find(scope["path"]) if scope["type"] == "http" else None
        if found is None:
            await self._elsewhere(scope, receive, send)
            return
        segments, methods = found
        chosen = methods.get(scope["method"])
        if chosen is None:
            allowed = (("allow", ", ".join(sorted(methods))),)
            error = HttpError(405, "this cannot be done with this path", allowed)
            await reply(send, failed(error, scope))
            return
        route, places = chosen
        scope["trimtab.parts"] = self._shared
        scope["path_params"] = {name: segments[place] for name, place in places.items()}
        await route.serve(scope, receive, send)

    async def _elsewhere(self, scope: Any, receive: Any, send: Any) -> None:
        if self._rest is not None and not scope.get("path", "").startswith(_OURS):
            await self._rest(scope, receive, send)
        elif scope["type"] == "http":
            await reply(send, failed(HttpError(404, "there is nothing under this path"), scope))
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})

    def _add(self, route: Routed) -> None:
        segments = route.path.split("/")
        places = {match[1]: i for i, each in enumerate(segments) if (match := _PARAMETER.fullmatch(each))}
        key = tuple(_ANY if i in places.values() else each for i, each in enumerate(segments))
        for method in route.methods:
            self._routes.setdefault(key, {})[method] = (route, places)
        masks = self._masks.setdefault(len(segments), [])
        if (mask := tuple(sorted(places.values()))) not in masks:
            masks.append(mask)
            masks.sort(key=len)  # a path that is there word by word comes before one with a blank

    def _find(self, path: str) -> tuple[list[str], dict[str, tuple[Routed, dict[str, int]]]] | None:
        segments = path.split("/")
        for mask in self._masks.get(len(segments), ()):
            key = segments.copy()
            for place in mask:
                key[place] = _ANY
            methods = self._routes.get(tuple(key))
            if methods is not None and all(segments[place] for place in mask):
                return segments, methods
        return None
