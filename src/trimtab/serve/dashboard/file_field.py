"""A field for a file, whose content comes as text over the page's own socket."""

import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from nicegui import events

from trimtab.core import BadInputError
from trimtab.serve.dashboard.parts import element, text

T = TypeVar("T")

_SEND = """async (event) => {
  const file = event.target.files[0];
  if (file) emit({name: file.name, text: file.size < 900000 ? await file.text() : null});
}"""  # a web socket's message is at most a megabyte


def file_field(label: str, take: Callable[[str, object], Awaitable[None]]) -> None:
    """Gives a chosen file's name and content to `take`; the content is None where the file is too large."""

    async def chosen(told: events.GenericEventArguments) -> None:
        await take(str(told.args.get("name", "")), told.args.get("text"))

    with element("p"), element("label", "file"):
        text("span", label)
        field = element("input", "", {"type": "file", "accept": ".json"})
    field.on("change", chosen, js_handler=_SEND)


def read_upload(content: str, name: str, read: Callable[[Path], T]) -> T:
    """What the commands' own reader makes of it; what is wrong is said with the file's own name."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "upload.json"
        path.write_text(content, encoding="utf-8", errors="replace")
        try:
            return read(path)
        except BadInputError as error:
            raise BadInputError(str(error).replace(str(path), f'"{name:.80}"')) from None
