"""A profile that somebody uploads, read as the command reads it."""

import tempfile
from pathlib import Path

from trimtab.core import BadInputError, Profile


def read_profile(content: object, name: str) -> Profile:
    """The profile in a file's content; what is wrong with it is said with the file's own name."""
    from trimtab.observe import load_profile

    if not isinstance(content, str):
        raise BadInputError(
            f'"{name:.80}" is larger than 900 kB, and no profile; it is kept by trimtab profile'
        )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "profile.json"
        path.write_text(content, encoding="utf-8", errors="replace")
        try:
            return load_profile(path)
        except BadInputError as error:
            raise BadInputError(str(error).replace(str(path), f'"{name:.80}"')) from None
