import pytest

from trimtab.core import (
    BadInputError,
    MissingDependencyError,
    NotFoundError,
    StorageError,
    TrimtabError,
)


@pytest.mark.parametrize("kind", [BadInputError, MissingDependencyError, NotFoundError, StorageError])
def test_every_error_for_a_reader_ends_a_command_with_status_two(kind: type[TrimtabError]) -> None:
    with pytest.raises(TrimtabError, match="what is wrong") as caught:
        raise kind("what is wrong")
    assert caught.value.exit_status == 2
