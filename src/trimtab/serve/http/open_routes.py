"""What everybody may ask: whether it lives, whether it is ready, what the API is; and figures for who may."""

import asyncio
from collections.abc import Callable
from typing import Any

import orjson

from trimtab.core import StorageError, TrimtabError
from trimtab.serve.health import HEALTH_PATH
from trimtab.serve.http import openapi
from trimtab.serve.http.answer import Answer, failed, problem_answer, reply
from trimtab.serve.http.call import Parts
from trimtab.serve.http.envelope import Figures
from trimtab.serve.http.metrics import exposition
from trimtab.serve.problems import plain_problem

_OK = Answer(200, b'{"status":"ok"}')
_TEXT = ((b"content-type", b"text/plain; version=0.0.4; charset=utf-8"),)


class OpenRoute:
    """A path that is read by `answer`, which is shown what requests share and the request's scope."""

    methods = ("GET",)

    def __init__(self, path: str, answer: Callable[[Parts, Any], Answer], waits: bool = False) -> None:
        self.path = path
        self._answer = answer
        self._waits = waits

    async def serve(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer."""
        parts: Parts = scope["trimtab.parts"]
        try:
            if self._waits:
                loop = asyncio.get_running_loop()
                answer = await loop.run_in_executor(parts.threads, self._answer, parts, scope)
            else:
                answer = self._answer(parts, scope)
        except TrimtabError as error:
            answer = failed(error, scope)
        await reply(send, answer)


def open_routes(figures: Figures | None, leads: Callable[[], bool]) -> list[OpenRoute]:
    """All of them; without `figures` there are no metrics."""

    def health(parts: Parts, scope: Any) -> Answer:
        return _OK

    def ready(parts: Parts, scope: Any) -> Answer:
        parts.gate.admit_anybody(scope)
        try:
            parts.desk.store.events.newest()
        except StorageError:
            return problem_answer(plain_problem(503, "the store does not answer"))
        return _OK

    def described(parts: Parts, scope: Any) -> Answer:
        return Answer(200, orjson.dumps(openapi.document()))

    def metrics(parts: Parts, scope: Any) -> Answer:
        parts.gate.admit(scope).require("metrics", fleet=True)
        assert figures is not None
        return Answer(200, exposition(figures, parts.hub.listeners, leads()).encode(), _TEXT)

    found = [
        OpenRoute(HEALTH_PATH, health),
        OpenRoute("/v1/health", health),
        OpenRoute("/v1/ready", ready, waits=True),
        OpenRoute("/v1/openapi.json", described, waits=True),
    ]
    return found if figures is None else [*found, OpenRoute("/metrics", metrics, waits=True)]
