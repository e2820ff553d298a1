"""What Trimtab can be asked over HTTP: routes, their limits, and the application that serves them."""

from trimtab.serve.api.app import Served, build

__all__ = ["Served", "build"]
