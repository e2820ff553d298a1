"""`trimtab up` runs the scheduler, and the controller of pools; `trimtab token` lets one more node join."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from contextlib import ExitStack

    from rich.console import Console

    from trimtab.schedule import Scheduler
    from trimtab.store import Store


def up(
    engine: Annotated[
        str, typer.Option("--engine", help="Where jobs run: local://, ray://…, slurm://…, kubernetes://…")
    ] = "local://",
    policy: Annotated[
        str, typer.Option("--policy", help="Who runs next; settings follow a colon, as in las:KEY=VALUE.")
    ] = "trimtab",
    round_seconds: Annotated[
        float, typer.Option("--round", min=0.1, help="Seconds between decisions when nothing happens.")
    ] = 10.0,
    prices: Annotated[
        list[str] | None,
        typer.Option("--price", metavar="KIND=PRICE", help="What an accelerator costs: a100=$3.20/h."),
    ] = None,
    pools: Annotated[
        Path | None, typer.Option("--pools", help="A YAML file of pools: run their controller as well.")
    ] = None,
    listen: Annotated[
        str, typer.Option("--listen", metavar="HOST:PORT", help="With pools: where nodes' agents find it.")
    ] = "127.0.0.1:7433",
    join: Annotated[
        str | None,
        typer.Option("--join", metavar="HOST:PORT", help="With pools: where nodes join; else the next port."),
    ] = None,
    metrics: Annotated[
        str | None,
        typer.Option(
            "--metrics", metavar="HOST:PORT", help="With pools: serve /metrics for Prometheus there."
        ),
    ] = None,
    seconds: Annotated[
        float | None, typer.Option("--seconds", min=0.1, help="End after so long; otherwise at Ctrl-C.")
    ] = None,
) -> None:
    """Run the scheduler: jobs of the store run on an engine when and where a policy decides.

    `trimtab submit` hands jobs in. Ctrl-C ends the scheduler and leaves its jobs running; started again, it
    goes on from there. It may be killed at any moment: no job is lost, and none runs twice.

    With `--pools`, it is also the controller of pools whose containers may run on many nodes and share their
    caps across all of them. It prints a token. On a node, `trimtab agent join TOKEN` gets a certificate for
    it, and `trimtab agent` then sizes its containers as this controller decides. A token is for one node and
    one hour; `trimtab token` prints another. When the controller has been silent for two seconds, every node
    goes back to safe limits; when it starts again before that, they go on. `trimtab top` shows all nodes. To
    be reached from other machines it must listen there: `--listen 0.0.0.0:7433`. If they know this machine by
    another name than its own, give that with `--join NAME:7434`.
    """
    import contextlib

    from rich.console import Console

    from trimtab.core import BadInputError
    from trimtab.schedule import only_scheduler
    from trimtab.store import open_store

    if metrics and pools is None:
        raise BadInputError("--metrics are those of pools; give --pools as well")
    console = Console(stderr=True, highlight=False)
    end = threading.Event()
    with contextlib.ExitStack() as stack:
        store = stack.enter_context(open_store())
        make = _scheduler(engine, policy, round_seconds, prices or [])
        stack.enter_context(_shown_log(console))
        post = stack.enter_context(only_scheduler(store))
        if pools is None:
            _run_alone(lambda: post.hold(make, end), end, seconds, console)
            console.print(
                "the scheduler has ended; its jobs run on, and it goes on with them when it is started again"
            )
            return

        def begin() -> None:
            thread = threading.Thread(target=post.hold, args=(make, end), name="scheduler")
            thread.start()
            stack.callback(thread.join)
            stack.callback(end.set)

        _control(stack, store, pools, listen, join, metrics, seconds, console, begin)
    console.print("the controller has ended; every node goes back to safe limits, and jobs run on")


def _scheduler(
    url: str, name: str, round_seconds: float, prices: list[str]
) -> Callable[["Store"], "Scheduler"]:
    """How to make the scheduler that was asked for, once it is its turn."""
    from trimtab.core import BadInputError
    from trimtab.core.units import parse_price
    from trimtab.engines import engine
    from trimtab.schedule import LoopSettings, Scheduler, kind_of, policy

    cost = {}
    for each in prices:
        kind, equals, price = each.partition("=")
        if not equals:
            raise BadInputError(f'"{each}" is not a price of a kind; write it like a100=$3.20/h')
        cost[kind_of(kind)] = parse_price(price)
    look = 0.5 if url.startswith("local:") else 2.0  # other engines are asked over a network
    settings = LoopSettings(round=round_seconds, look=min(look, round_seconds))
    policy(name)  # a name that is none is refused now
    where = engine(url)
    return lambda store: Scheduler(store, where, policy(name), name, settings, prices=cost, address=url)


@contextmanager
def _shown_log(console: "Console") -> Iterator[None]:
    """What the scheduler says while it runs, line by line."""
    import logging

    class Shown(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            console.print(f"{time.strftime('%H:%M:%S')} {record.getMessage()}", markup=False, soft_wrap=True)

    log, handler = logging.getLogger("trimtab.schedule"), Shown()
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.removeHandler(handler)


def _run_alone(
    run: Callable[[], None], end: threading.Event, seconds: float | None, console: "Console"
) -> None:
    import signal

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, frame: end.set())
    timer = threading.Timer(seconds or 0.0, end.set)
    timer.daemon = True
    if seconds is not None:
        timer.start()
    console.print("scheduling; trimtab submit FILE hands a job in; Ctrl-C ends this and leaves jobs running")
    run()
    timer.cancel()


def _control(
    stack: "ExitStack",
    store: "Store",
    pools: Path,
    listen: str,
    join: str | None,
    metrics: str | None,
    seconds: float | None,
    console: "Console",
    begin: Callable[[], None],
) -> None:
    """The controller of pools, until it is told to end; `begin` is called once it listens."""
    import signal

    from trimtab.resize import Journal, metrics_server, read_pools
    from trimtab.resize.link import Serving, new_token, serve

    wanted = read_pools(pools)
    journal = stack.enter_context(Journal(store.ledger.record))

    def ready(serving: Serving) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda number, frame: serving.stop())
        if metrics:
            port = stack.enter_context(metrics_server(metrics, serving.status))
            console.print(f"metrics at port {port}, /metrics")
        console.print(f"sizing {', '.join(pool.name for pool in wanted)} for agents at port {serving.port}")
        console.print("on a node: trimtab agent join TOKEN, then trimtab agent; Ctrl-C to end. The token:")
        typer.echo(new_token())
        begin()

    serve(wanted, ready, listen=listen, join=join, seconds=seconds, notice=journal)


def token(
    minutes: Annotated[float, typer.Option("--minutes", min=1, help="How long it can be used.")] = 60.0,
) -> None:
    """Print a token that lets one more node join the controller which runs here.

    It is one word for `trimtab agent join`. It can be used once, and holds the address, the fingerprint by
    which the node knows the controller, and a secret: give it only to who may add a node.
    """
    from trimtab.resize.link import new_token

    typer.echo(new_token(lifetime=60.0 * minutes))
