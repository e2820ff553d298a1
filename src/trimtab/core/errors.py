"""Errors that users read: one sentence with what is wrong, where, and what would be right."""


class TrimtabError(Exception):
    """Base of every error a user is meant to read; the command line prints it and exits so."""

    exit_status = 2


class BadInputError(TrimtabError):
    """The user gave something that cannot be used: a file, a flag, a unit, a name."""


class NotFoundError(TrimtabError):
    """The thing named does not exist: a decision, a profile, an offer, a cloud."""


class StorageError(TrimtabError):
    """The place where Trimtab keeps things cannot be read or written."""


class MissingDependencyError(TrimtabError):
    """A feature needs a package or a program that is not installed; the message says which and how."""
