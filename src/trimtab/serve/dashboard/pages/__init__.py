"""All pages, in the order of the navigation: those in `_FIRST`, then the pages of all other modules here."""

from importlib import import_module
from pkgutil import iter_modules

from trimtab.serve.dashboard.frame import DashboardPage

_FIRST = ("fleet", "jobs", "recommend", "partition", "resize", "fabric", "decisions", "models", "catalog")

_NAMES = dict.fromkeys((*_FIRST, *(module.name for module in iter_modules(__path__))))

PAGES: tuple[DashboardPage, ...] = tuple(import_module(f"{__name__}.{name}").PAGE for name in _NAMES)
