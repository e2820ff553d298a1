"""Files and requests that users write: values with units, and errors that say where and what."""

import pytest
from pydantic import Field

from trimtab.core import BadInputError, Bytes, Command, Count, Name, Seconds, StrictModel, validate


class Uplink(StrictModel):
    device: Name
    speed: Bytes = 0.0


class Host(StrictModel):
    name: Name
    uplinks: tuple[Uplink, ...] = ()
    hold: Seconds = 1.0
    peers: dict[str, Uplink] = Field(default_factory=dict)
    count: Count = 1
    command: Command = ("true",)
    spare: Uplink | None = None


def problem(data: object) -> str:
    with pytest.raises(BadInputError) as caught:
        validate(Host, data, "host.yaml")
    return str(caught.value)


def test_values_have_units() -> None:
    host = validate(Host, {"name": "a", "hold": "2m", "uplinks": [{"device": "e0", "speed": "1GiB"}]}, "f")
    assert (host.hold, host.uplinks[0].speed) == (120.0, 2.0**30)


def test_a_command_is_a_line_or_a_list() -> None:
    assert validate(Host, {"name": "a", "command": "python 'my script.py' 3"}, "f").command == (
        "python",
        "my script.py",
        "3",
    )
    assert validate(Host, {"name": "a", "command": ["sleep", 3]}, "f").command == ("sleep", "3")


@pytest.mark.parametrize(
    ("data", "parts"),
    [
        ([1, 2], ("host.yaml", "[1, 2]", "name")),
        ({}, ("host.yaml", "name", "missing")),
        ({"name": "a", "uplink": []}, ("host.yaml", '"uplink"', "uplinks")),
        ({"name": "a", "uplinks": [{"device": "e0", "sped": 1}]}, ("uplinks[0]", '"sped"', "speed")),
        ({"name": "a", "peers": {"b": {"devic": "e0"}}}, ("peers.b", "device")),
        ({"name": "a", "spare": {"device": "e0", "sped": 1}}, ("spare", '"sped"', "speed")),
        ({"name": "a", "hold": "soon"}, ("hold", "soon", "6h")),
        ({"name": "a", "hold": True}, ("hold", "True", "6h")),
        ({"name": "a", "hold": "inf"}, ("hold", "inf", "6h")),
        ({"name": "a", "count": "8"}, ("count", "8")),
        ({"name": "a", "count": True}, ("count", "True")),
        ({"name": "a", "count": 0}, ("count", "0", "1")),
        ({"name": "a b"}, ("name", "a b")),
        ({"name": "a", "command": "python 'x"}, ("command", "quotes")),
        ({"name": "a", "command": []}, ("command", "[]")),
    ],
)
def test_an_error_names_the_place_the_value_and_what_would_be_right(
    data: object, parts: tuple[str, ...]
) -> None:
    said = problem(data)
    assert all(part in said for part in parts), said
    assert "\n" not in said
