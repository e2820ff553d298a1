"""Which engines there are. One more is one module, and one line in `ENGINES`."""

from collections.abc import Callable, Mapping

from trimtab.core import BadInputError, Engine, NotFoundError
from trimtab.engines.local import LocalEngine

ENGINES: Mapping[str, Callable[[], Engine]] = {"local": LocalEngine}


def engine(url: str) -> Engine:
    """The engine an address such as `local://` names."""
    scheme, separator, rest = url.partition("://")
    there = ", ".join(f"{name}://" for name in ENGINES)
    if not separator or scheme not in ENGINES:
        raise NotFoundError(f'no engine is called "{url}"; there are {there}')
    if rest:
        raise BadInputError(f'nothing comes after {scheme}://, so "{rest}" must go')
    return ENGINES[scheme]()
