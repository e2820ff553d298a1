"""Files that people upload."""

import json

import pytest
from dashboard_house import profile_of

from trimtab.core import BadInputError, to_plain
from trimtab.serve.dashboard.pages.recommend import read_profile


def test_a_profile_is_read_as_it_was_written() -> None:
    made = profile_of()
    assert read_profile(json.dumps(to_plain(made)), "mine.json") == made


@pytest.mark.parametrize("content", ["", "{", "[]", '{"a": 1}', "\ud800", None, 7])
def test_what_is_no_profile_is_said_with_its_name_and_no_folder(content: object) -> None:
    with pytest.raises(BadInputError, match=r"mine\.json") as refused:
        read_profile(content, "mine.json")
    assert "/" not in str(refused.value).replace("trimtab profile -- COMMAND", "")
