"""The operations over HTTP: the ASGI application, its limits, and the document that describes it."""

from trimtab.serve.http.app import HttpApplication

__all__ = ["HttpApplication"]
