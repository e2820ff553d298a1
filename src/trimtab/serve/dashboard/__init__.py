"""The dashboard: pages over the operations that the API serves.

`HttpApplication` mounts it beside the API.
"""

from trimtab.serve.dashboard.app import Dashboard

__all__ = ["Dashboard"]
