"""Where is it kept? Decisions and their outcomes, profiles and events, in SQLite or PostgreSQL."""

from trimtab.store.comparison import Comparison, compare
from trimtab.store.event import Event
from trimtab.store.store import Store, open_store

__all__ = ["Comparison", "Event", "Store", "compare", "open_store"]
