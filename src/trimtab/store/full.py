"""A store that has no room left."""

from trimtab.core import StorageError


class FullError(StorageError):
    """There is no room for what was to be kept; nothing of it was, and all that was there before still is."""
