"""Where Trimtab keeps its things on this machine."""

import os
from pathlib import Path


def home() -> Path:
    """`$TRIMTAB_HOME`, or `~/.trimtab`. The folder is made by whoever first writes into it."""
    return Path(os.environ.get("TRIMTAB_HOME") or Path.home() / ".trimtab")
