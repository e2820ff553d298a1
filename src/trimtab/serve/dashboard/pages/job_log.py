"""What a job's run has written, as it writes it."""

from collections.abc import Awaitable, Callable

from trimtab.core import TrimtabError
from trimtab.serve.dashboard.live import EVERY
from trimtab.serve.dashboard.parts import notice, text
from trimtab.serve.dashboard.visit import Visit
from trimtab.serve.problems import problem_of

_NOTHING = "It has written nothing yet."


async def show_log(visit: Visit, id: str) -> Callable[[], Awaitable[None]]:
    """The log's end; what it returns shows what has come since, until no more comes."""
    said = notice()
    shown = text("pre", "", "log", {"tabindex": "0", "aria-label": "Log", "role": "region"})
    over = False

    async def look() -> None:
        nonlocal over
        if over:
            return
        try:
            written, over = await visit.ask(
                ("log", id), lambda service: visit.tails.read(service.jobs, id), age=EVERY
            )
        except TrimtabError as error:
            said.set_text(problem_of(error).detail)
            return
        shown.set_text(written)
        said.set_text("" if written else _NOTHING)

    await look()
    return look
