"""A Trimtab somewhere else, asked as the one here is."""

from typing import Any, Self

from trimtab.serve.client.areas import (
    RemoteCatalog,
    RemoteDecisions,
    RemoteEvents,
    RemoteFabric,
    RemoteFleet,
    RemoteJobs,
    RemoteModels,
    RemotePools,
    RemoteProfiles,
    RemoteTenants,
    RemoteTokens,
)
from trimtab.serve.client.connection import Connection


class Client:
    """The areas of a server. `verify` is httpx's: True, or an SSL context that trusts its certificate.

    Lost answers are asked for again, with the same key; what it refuses is raised as it would be there.
    """

    def __init__(self, url: str, token: str = "", verify: Any = True) -> None:
        self._connection = Connection(url, token, verify)
        self.catalog = RemoteCatalog(self._connection)
        self.decisions = RemoteDecisions(self._connection)
        self.events = RemoteEvents(self._connection)
        self.fabric = RemoteFabric(self._connection)
        self.fleet = RemoteFleet(self._connection)
        self.jobs = RemoteJobs(self._connection)
        self.models = RemoteModels(self._connection)
        self.pools = RemotePools(self._connection)
        self.profiles = RemoteProfiles(self._connection)
        self.tenants = RemoteTenants(self._connection)
        self.tokens = RemoteTokens(self._connection)

    def close(self) -> None:
        """Hang up."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()
