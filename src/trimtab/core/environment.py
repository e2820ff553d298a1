"""The environment: Trimtab's home folder, and the variables that jobs inherit."""

import os
import re
from collections.abc import Mapping
from pathlib import Path


def home() -> Path:
    """`$TRIMTAB_HOME`, or `~/.trimtab`; created by the first write into it."""
    return Path(os.environ.get("TRIMTAB_HOME") or Path.home() / ".trimtab")


INHERITED = frozenset(
    (
        *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR", "LD_LIBRARY_PATH"),
        *("PYTHONPATH", "VIRTUAL_ENV", "CONDA_PREFIX", "XDG_CACHE_HOME", "HF_HOME", "TORCH_HOME"),
        *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"),
        *("http_proxy", "https_proxy", "all_proxy", "no_proxy"),
        *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"),
        *("CUDA_HOME", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "NVIDIA_VISIBLE_DEVICES"),
        *("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "OMP_NUM_THREADS", "MKL_NUM_THREADS"),
    )
)
"""Variables that a job inherits, besides `LC_*`; docs/reference/job-files.md lists them."""

INHERITED_PREFIX = "LC_"

_WITH_CREDENTIALS = re.compile(r"://[^/\s]*@")
_WORDS = {"KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "PWD", "CREDENTIALS"}
_FOLDERS = {"PWD", "OLDPWD"}
_ENDS = ("PASSWORD", "PASSWD", "TOKEN", "SECRET")


def names_a_secret(name: str) -> bool:
    """Whether a variable of that name is likely to hold a secret: AWS_SECRET_ACCESS_KEY, PGPASSWORD."""
    upper = name.upper()
    return upper not in _FOLDERS and (bool(_WORDS & set(upper.split("_"))) or upper.endswith(_ENDS))


def inherited(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that a job inherits: those of a short list, if they hold no URL with credentials."""
    return {
        name: value
        for name, value in environment.items()
        if (name in INHERITED or name.startswith(INHERITED_PREFIX)) and not _WITH_CREDENTIALS.search(value)
    }
