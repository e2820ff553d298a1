"""Which variables of an environment are nobody else's business."""

import re
from collections.abc import Mapping

_WORDS = {"KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "PWD", "CREDENTIALS"}
_WHERE_WE_ARE = {"PWD", "OLDPWD"}
_ENDS = ("PASSWORD", "PASSWD", "TOKEN", "SECRET")
_WITH_PASSWORD = re.compile(r"://[^/\s:@]*:[^/\s]+@")


def names_a_secret(name: str) -> bool:
    """Whether a variable of that name is likely to hold a secret: AWS_SECRET_ACCESS_KEY, PGPASSWORD."""
    upper = name.upper()
    return upper not in _WHERE_WE_ARE and (bool(_WORDS & set(upper.split("_"))) or upper.endswith(_ENDS))


def without_secrets(environment: Mapping[str, str]) -> dict[str, str]:
    """What a job may inherit: neither what is named like a secret, nor URLs with a password in them."""
    return {
        name: value
        for name, value in environment.items()
        if not names_a_secret(name) and not _WITH_PASSWORD.search(value)
    }
