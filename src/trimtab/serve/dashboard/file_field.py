"""A field for a file, whose content comes as text over the page's own socket."""

from collections.abc import Awaitable, Callable

from nicegui import events

from trimtab.serve.dashboard.parts import element, text

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
