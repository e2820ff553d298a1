"""Errors that users read: one sentence with what is wrong, where, and what would be right."""


class TrimtabError(Exception):
    """Base of every error that users read; the command line prints it and exits with `exit_status`."""

    exit_status = 2


class BadInputError(TrimtabError):
    """A file, flag, unit or name that cannot be used."""


class NotFoundError(TrimtabError):
    """The named decision, profile, offer or cloud does not exist."""


class StorageError(TrimtabError):
    """The store or a file cannot be read or written."""


class MissingDependencyError(TrimtabError):
    """A feature needs a package or a program that is not installed; the message says which and how."""
