"""From a path to its route."""

import asyncio
from typing import Any

from hypothesis import given, strategies as st

from trimtab.serve.http.areas import AREAS
from trimtab.serve.http.switch import Switch


class Marked:
    """A route that says which it is, and what it was called with."""

    def __init__(self, path: str, *methods: str) -> None:
        self.path, self.methods = path, methods

    async def serve(self, scope: Any, receive: Any, send: Any) -> None:
        await send((self.path, scope["path_params"]))


def asked(switch: Switch, path: str, method: str = "GET") -> Any:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(switch({"type": "http", "path": path, "method": method}, None, send))
    return sent[0]


def test_a_path_that_is_there_word_by_word_comes_before_one_with_a_blank() -> None:
    switch = Switch(
        [Marked("/v1/a/{id}", "GET"), Marked("/v1/a/all", "GET"), Marked("/v1/a/{id}/b", "GET")], None
    )
    assert asked(switch, "/v1/a/all") == ("/v1/a/all", {})
    assert asked(switch, "/v1/a/x") == ("/v1/a/{id}", {"id": "x"})
    assert asked(switch, "/v1/a/x/b") == ("/v1/a/{id}/b", {"id": "x"})


def test_methods_that_a_path_has_not_are_named_with_those_it_has() -> None:
    switch = Switch([Marked("/v1/a", "GET"), Marked("/v1/a", "POST")], None)
    refused = asked(switch, "/v1/a", "DELETE")
    assert refused["status"] == 405
    assert (b"allow", b"GET, POST") in refused["headers"]


def test_what_is_not_ours_is_somebody_elses_unless_it_is_under_our_name() -> None:
    async def rest(scope: Any, receive: Any, send: Any) -> None:
        await send("rest")

    switch = Switch([Marked("/v1/a", "GET")], None, rest)
    assert asked(switch, "/b") == "rest"
    assert asked(switch, "/v1/b")["status"] == 404


@given(st.text(max_size=40))
def test_no_path_leads_astray(path: str) -> None:
    switch = Switch([Marked("/v1/a/{id}", "GET")], None)
    found = asked(switch, f"/v1/a/{path}")
    if path and "/" not in path:
        assert found == ("/v1/a/{id}", {"id": path})
    else:
        assert found["status"] == 404


def test_every_route_of_the_api_is_found() -> None:
    routes = [route for area in AREAS for route in area.router.routes]
    switch = Switch(routes, None)
    for route in routes:
        _, methods = switch._find(route.path)  # type: ignore[misc]
        assert all(methods[method][0] is route for method in route.methods)
