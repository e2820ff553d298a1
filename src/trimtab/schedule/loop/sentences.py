"""What went wrong, in a sentence for the log."""

import traceback
from pathlib import Path

from trimtab.core import TrimtabError, one_line


def sentence_of(error: Exception) -> str:
    """An error's own sentence; of one that nobody foresaw, what it is and where it came from."""
    if isinstance(error, TrimtabError):
        return str(error)
    where = traceback.extract_tb(error.__traceback__)[-1]
    what = one_line(f"{type(error).__name__}: {error}")
    return f"{what} (line {where.lineno} of {Path(where.filename).name})"
