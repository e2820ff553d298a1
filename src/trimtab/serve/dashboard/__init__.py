"""The dashboard: pages for people, over the same operations as the API.

The API's `build` puts it beside its own routes where the settings want one.
"""

from trimtab.serve.dashboard.app import Dashboard

__all__ = ["Dashboard"]
