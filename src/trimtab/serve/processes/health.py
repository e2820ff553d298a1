"""The health check: whether the server of the settings answers."""

import http.client
import ssl

from trimtab.core import TrimtabError, split_address
from trimtab.serve.settings import Settings

HEALTH_PATH = "/healthz"
"""Answers 200 to anybody while the service lives; tells nothing else."""

_LOOPBACK = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # nosec B104 # compared with, not bound
_TIMEOUT = 2.0  # s


class NotServingError(TrimtabError):
    """No server answers at the address of the settings."""


def check_serving(settings: Settings) -> None:
    """Raise NotServingError unless the server of the settings answers with 200."""
    host, port = split_address(settings.listen)
    host = _LOOPBACK.get(host, host)
    connection: http.client.HTTPConnection
    if settings.tls_certificate:
        # It asks itself: the certificate is for the name by which others know it.
        context = ssl._create_unverified_context()  # nosec B323 # it is told nothing, and asked for a status
        connection = http.client.HTTPSConnection(host, port, timeout=_TIMEOUT, context=context)
    else:
        connection = http.client.HTTPConnection(host, port, timeout=_TIMEOUT)
    try:
        connection.request("GET", HEALTH_PATH)
        status = connection.getresponse().status
    except (OSError, http.client.HTTPException) as error:
        why = (getattr(error, "strerror", None) or str(error) or type(error).__name__).lower()
        raise NotServingError(
            f"nothing serves at {settings.listen}: {why}; start it with trimtab up"
        ) from None
    finally:
        connection.close()
    if status != http.client.OK:
        raise NotServingError(f"what serves at {settings.listen} answers {status} to {HEALTH_PATH}, not 200")
