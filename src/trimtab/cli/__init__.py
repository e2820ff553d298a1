"""The `trimtab` command. Thin: parse, call, print."""

from trimtab.cli.app import main

__all__ = ["main"]
