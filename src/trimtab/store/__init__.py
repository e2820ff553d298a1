"""The store: decisions and their outcomes, profiles, events, jobs; in SQLite or PostgreSQL."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
