"""The environment: where Trimtab keeps its files, and which variables hold secrets."""

import os
import re
from collections.abc import Mapping
from pathlib import Path


def home() -> Path:
    """`$TRIMTAB_HOME`, or `~/.trimtab`. The folder is made by whoever first writes into it."""
    return Path(os.environ.get("TRIMTAB_HOME") or Path.home() / ".trimtab")


_WORDS = {"KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "PWD", "CREDENTIALS"}
_WHERE_WE_ARE = {"PWD", "OLDPWD"}
_ENDS = ("PASSWORD", "PASSWD", "TOKEN", "SECRET")
_WITH_PASSWORD = re.compile(r"://[^/\s:@]*:[^/\s]+@")


def names_a_secret(name: str) -> bool:
    """Whether a variable of that name is likely to hold a secret: AWS_SECRET_ACCESS_KEY, PGPASSWORD."""
    upper = name.upper()
    return upper not in _WHERE_WE_ARE and (bool(_WORDS & set(upper.split("_"))) or upper.endswith(_ENDS))


def without_secrets(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables a job may inherit: none that is named like a secret or holds a URL with a password."""
    return {
        name: value
        for name, value in environment.items()
        if not names_a_secret(name) and not _WITH_PASSWORD.search(value)
    }
