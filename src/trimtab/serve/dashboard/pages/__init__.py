"""All pages, in the order of the navigation. Adding one is a file with a `PAGE`, and its name here."""

from importlib import import_module

from trimtab.serve.dashboard.frame import Page

_NAMES = ("fleet", "jobs", "recommend", "partition", "resize", "fabric", "decisions", "models", "catalog")

PAGES: tuple[Page, ...] = tuple(import_module(f"{__name__}.{name}").PAGE for name in _NAMES)
