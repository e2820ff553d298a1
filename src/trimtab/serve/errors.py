"""What a caller may be told besides what the rest of Trimtab says."""

from trimtab.core import TrimtabError


class UnknownCallerError(TrimtabError):
    """Nobody knows who asks: no token, or one that opens nothing."""


class ForbiddenError(TrimtabError):
    """Who asks is known, and may not do this."""


class ChangedError(TrimtabError):
    """What was to be changed is no longer as the caller saw it."""


class ConditionMissingError(TrimtabError):
    """A change that could undo somebody else's must say which state it is of."""
