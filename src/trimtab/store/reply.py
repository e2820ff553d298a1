"""What a request was answered, kept so that its repetition is answered alike."""

from dataclasses import dataclass

from trimtab.core import BadInputError


class ReusedKeyError(BadInputError):
    """A key that stands for one request came with another."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A status and a body (JSON text); `repeated` where it was given before."""

    status: int
    body: str
    repeated: bool = False
