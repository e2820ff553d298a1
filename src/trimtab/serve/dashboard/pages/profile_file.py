"""A profile that somebody uploads, read as the command reads it."""

from trimtab.core import BadInputError, Profile
from trimtab.serve.dashboard.file_field import read_upload


def read_profile(content: object, name: str) -> Profile:
    """The profile in a file's content; what is wrong with it is said with the file's own name."""
    from trimtab.observe import load_profile

    if not isinstance(content, str):
        raise BadInputError(
            f'"{name:.80}" is larger than 900 kB, and no profile; it is kept by trimtab profile'
        )
    return read_upload(content, name, load_profile)
