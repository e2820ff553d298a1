"""How is a Trimtab elsewhere asked? A typed client with the operations' own names and results."""

from trimtab.serve.client.client import Client
from trimtab.serve.client.connection import UnreachableError

__all__ = ["Client", "UnreachableError"]
