"""The files that settings name: a certificate with its key, and pools."""

import ssl
from collections.abc import Iterator
from pathlib import Path

from trimtab.core import TrimtabError
from trimtab.serve.doctor.finding import Finding, missing, ok, why
from trimtab.serve.settings import Settings


def look(settings: Settings) -> Iterator[Finding]:
    """Only of what is set."""
    yield _names(settings)
    if settings.tls_certificate:
        yield _certificate(settings)
    if settings.pools:
        yield _pools(settings)


def _names(settings: Settings) -> Finding:
    from trimtab.serve.configuration import check_names

    try:
        check_names(settings)
    except TrimtabError as error:
        return missing("settings", why(error), "trimtab up", "trimtab config show says by what", needed=True)
    return ok("settings", f"engine {settings.engine.partition('://')[0]}, policy {settings.policy}")


def _certificate(settings: Settings) -> Finding:
    what = "TLS certificate"
    try:
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(
            settings.tls_certificate, settings.tls_key, password=lambda: b""
        )
    except (OSError, ValueError) as error:
        return missing(
            what,
            f"{settings.tls_certificate} with {settings.tls_key}: {why(error)}",
            "serving at all",
            "give a PEM certificate and its unencrypted key, readable to this user",
            needed=True,
        )
    return ok(what, settings.tls_certificate)


def _pools(settings: Settings) -> Finding:
    from trimtab.resize import read_pools

    try:
        count = len(read_pools(Path(settings.pools)))
    except TrimtabError as error:
        return missing("pools", why(error), "trimtab up", "mend that file", needed=True)
    return ok("pools", f"{count} in {settings.pools}")
