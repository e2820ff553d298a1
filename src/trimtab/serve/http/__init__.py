"""What Trimtab can be asked over HTTP: routes, their limits, and the application that serves them."""

from trimtab.serve.http.app import Served, build
from trimtab.serve.http.areas.events import STREAM
from trimtab.serve.http.writer import writing_beside

__all__ = ["STREAM", "Served", "build", "writing_beside"]
