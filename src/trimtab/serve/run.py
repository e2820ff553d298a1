"""All that runs as one system: how its scheduler is made, and the API beside it."""

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING

from trimtab.core import MissingDependencyError
from trimtab.serve.settings import Settings

if TYPE_CHECKING:
    from trimtab.schedule import Scheduler
    from trimtab.serve.beside import Beside
    from trimtab.store import Store

log = logging.getLogger("trimtab.serve")

_NEEDED = ("fastapi", "uvicorn", "uvloop", "httptools", "orjson")
_ITS_PAGES = ("nicegui",)


def scheduler_of(settings: Settings) -> "Callable[[Store], Scheduler]":
    """How to make the scheduler that was asked for, once it is its turn; wrong names are refused now."""
    from trimtab.core import BadInputError, parse_price
    from trimtab.engines import engine
    from trimtab.schedule import LoopSettings, Scheduler, kind_of, policy

    cost = {}
    for each in settings.prices:
        kind, equals, price = each.partition("=")
        if not equals:
            raise BadInputError(f'"{each}" is not a price of a kind; write it like a100=$3.20/h')
        cost[kind_of(kind)] = parse_price(price)
    url, name = settings.engine, settings.policy
    look = 0.5 if url.startswith("local:") else 2.0  # other engines are asked over a network
    loop = LoopSettings(round=settings.round, look=min(look, settings.round))
    policy(name)
    where = engine(url)
    return lambda store: Scheduler(store, where, policy(name), name, loop, prices=cost, address=url)


def require_installed(settings: Settings) -> None:
    """Raise where what the API needs is not installed."""
    missing = [
        name for name in (*_NEEDED, *(_ITS_PAGES if settings.dashboard else ())) if not find_spec(name)
    ]
    if missing:
        raise MissingDependencyError(
            f"the API needs {', '.join(missing)}; pip install 'trimtab[serve]', or leave it out with --no-api"
        )


@contextmanager
def serving(store: "Store", settings: Settings, scheduler: "Beside") -> Iterator[str]:
    """Serve the API while the block runs, once the scheduler is at its post; its address."""
    require_installed(settings)
    from trimtab.serve.http import build, writing_beside
    from trimtab.serve.listening import listening

    with ExitStack() as stack:
        # PostgreSQL's writes wait for a network and not for a turn, which threads can do as well.
        writer = stack.enter_context(writing_beside(settings)) if store.is_file else None
        served = build(store, settings, leads=scheduler.leads, writer=writer)
        scheduler.wait()
        server = stack.enter_context(listening(served, settings))
        host = settings.listen.rpartition(":")[0]
        yield f"{'https' if settings.tls_certificate else 'http'}://{host}:{server.port}"
