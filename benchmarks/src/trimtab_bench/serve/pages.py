"""How long pages of lists take, wherever they are in the list, asked one after the other."""

import http.client
import time
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from trimtab.core import TrimtabError
from trimtab_bench.serve import world
from trimtab_bench.serve.latency import latency
from trimtab_bench.serve.operations import READS, Operations
from trimtab_bench.serve.processes import Server
from trimtab_bench.serve.world import EVERYBODY, TENANTS, World

LISTS = tuple(name for name in READS if ".list " in name)
"""Reads that are pages of lists."""


def page_figures(
    server: Server, size: World, tokens: Mapping[str, str], times: int, seed: int
) -> dict[str, Any]:
    """Latencies in milliseconds of each list, asked `times` by tenants and as often by who sees all."""
    asks = Operations(size, tokens, "pages", seed)
    line = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    found = {}
    try:
        for name in LISTS:
            for who, callers in (("one tenant", TENANTS), ("all tenants", 0)):
                took = list[float]()
                for number in range(times):
                    whose = number % callers if callers else None
                    token = tokens[EVERYBODY if whose is None else world.tenant(whose)]
                    took.append(_asked(line, asks.path(name, whose), token))
                found[f"{name}, {who}"] = asdict(latency(took))
    finally:
        line.close()
    return found


def _asked(line: http.client.HTTPConnection, path: str, token: str) -> float:
    began = time.perf_counter()
    line.request("GET", path, headers={"Authorization": f"Bearer {token}"})
    answer = line.getresponse()
    body = answer.read()
    took = time.perf_counter() - began
    if answer.status != 200:
        raise TrimtabError(f"{path} was answered with status {answer.status}: {body[:200].decode()}")
    return took
