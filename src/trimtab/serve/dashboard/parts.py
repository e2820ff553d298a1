"""What pages are made of. Whatever comes from the store is shown as text, never as markup."""

from collections.abc import Mapping, Sequence

from nicegui import ui
from nicegui.element import Element
from nicegui.elements.mixins.text_element import TextElement


def element(tag: str, classes: str = "", properties: Mapping[str, str] | None = None) -> Element:
    """Something that holds others."""
    made = ui.element(tag).classes(classes)
    for name, value in (properties or {}).items():
        made.props[name] = value
    return made


def text(
    tag: str, content: str, classes: str = "", properties: Mapping[str, str] | None = None
) -> TextElement:
    """A piece of text."""
    made = TextElement(tag=tag, text=content).classes(classes)
    for name, value in (properties or {}).items():
        made.props[name] = value
    return made


def heading(content: str) -> None:
    """Over a part of a page."""
    text("h2", content)


def alert(sentence: str) -> None:
    """What is wrong."""
    text("p", sentence, "alert", {"role": "alert"})


def empty(sentence: str, commands: Sequence[str] = ()) -> Element:
    """That there is nothing to show yet, and how to get something."""
    with element("div", "empty") as shown:
        text("p", sentence)
        for command in commands:
            text("code", command)
    return shown


def facts(pairs: Sequence[tuple[str, str]]) -> Element:
    """Names and values, side by side."""
    with element("dl", "facts") as shown:
        for name, value in pairs:
            if value:
                text("dt", name)
                text("dd", value)
    return shown


def bullets(items: Sequence[str]) -> None:
    """Sentences in a list."""
    with element("ul"):
        for item in items:
            text("li", item)


def tiles(pairs: Sequence[tuple[str, str]]) -> list[TextElement]:
    """A few figures in large print; their values, to be changed later."""
    values = []
    with element("dl", "tiles"):
        for name, value in pairs:
            with element("div"):
                text("dt", name)
                values.append(text("dd", value))
    return values


def button(content: str, main: bool = False) -> TextElement:
    """Something to press."""
    return text("button", content, "main" if main else "plain", {"type": "button"})


def link(content: str, target: str) -> TextElement:
    """A way to a page of ours."""
    return text("a", content, "", {"href": target})


def notice() -> TextElement:
    """An empty line that is read out when it says something."""
    return text("p", "", "notice", {"role": "status"})
