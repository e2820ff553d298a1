"""What a job's run has written, as it writes it."""

from nicegui import ui

from trimtab.core import TrimtabError
from trimtab.serve.dashboard.live import EVERY
from trimtab.serve.dashboard.parts import notice, text
from trimtab.serve.dashboard.visit import Visit
from trimtab.serve.problems import problem_of
from trimtab.serve.service import LogPiece, Service

_KEPT = 64 << 10
"""Characters that stay on the page; the beginning of a longer log goes."""
_NOTHING = "It has written nothing yet."


async def show_log(visit: Visit, id: str) -> None:
    """The log's end, followed until the job is over."""
    said = notice()
    shown = text("pre", "", "log", {"tabindex": "0", "aria-label": "Log", "role": "region"})
    run, place, written = "", 0, ""

    async def look() -> bool:
        """Take what is new; whether no more comes."""
        nonlocal run, place, written
        try:
            piece = await visit.do(lambda service: _piece(service, id, run, place))
        except TrimtabError as error:
            said.set_text(problem_of(error).detail)
            return False
        if piece.run != run:
            run, written = piece.run, ""
        place = piece.next
        written = (written + piece.data.decode("utf-8", "replace"))[-_KEPT:]
        shown.set_text(written)
        said.set_text("" if written else _NOTHING)
        return piece.over

    async def again() -> None:
        if await look():
            timer.cancel()

    over = await look()
    if not over:
        timer = ui.timer(EVERY, again, immediate=False)


def _piece(service: Service, id: str, run: str, place: int) -> LogPiece:
    """What follows; of another run, or of a very long log, its end."""
    piece = service.jobs.log(id, place)
    return piece if piece.run == run or not place else service.jobs.log(id, 0)
