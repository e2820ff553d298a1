"""The Kubernetes API by its official client: how it is found, and what it answers."""

import json
import os
from collections.abc import Callable
from typing import Any

from trimtab.core import BadInputError, MissingDependencyError, TrimtabError

TIMEOUT = 10.0
"""Seconds for an answer."""


class KubernetesError(TrimtabError):
    """The API server refuses, or does not answer (status 0)."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(
            f"the Kubernetes API answers {status}: {message}"
            if status
            else f"the Kubernetes API does not answer: {message}"
        )
        self.status = status
        self.message = message


def api_client() -> Any:
    """The client, by KUBECONFIG or the user's own configuration; in a pod, by its account."""
    try:
        from kubernetes import client, config
    except ImportError:
        raise MissingDependencyError(
            "Kubernetes needs its client: pip install 'trimtab[kubernetes]'"
        ) from None
    configuration = client.Configuration()
    in_pod = "KUBERNETES_SERVICE_HOST" in os.environ and "KUBECONFIG" not in os.environ
    try:
        if in_pod:
            config.load_incluster_config(client_configuration=configuration)
        else:
            config.load_kube_config(os.environ.get("KUBECONFIG"), client_configuration=configuration)
    except (config.ConfigException, OSError, ValueError) as error:
        why = next(iter(str(error).splitlines()), "it is damaged")
        raise BadInputError(
            f"no Kubernetes cluster is known here: {why}; name its configuration with KUBECONFIG, or run in "
            "a pod with a service account"
        ) from None
    return client.ApiClient(configuration)


def core_api() -> Any:
    """The client's `CoreV1Api`."""
    from_client = api_client()
    from kubernetes import client

    return client.CoreV1Api(from_client)


def called(function: Callable[..., Any], *arguments: Any, **named: Any) -> dict[str, Any]:
    """What the server answers, as it wrote it; `KubernetesError` where it refuses or does not answer."""
    status, body = answered(function, *arguments, **named)
    try:
        told = json.loads(body)
    except ValueError:
        told = {"message": body.decode(errors="replace")[:200]}
    if not 200 <= status < 300 or not isinstance(told, dict):
        raise KubernetesError(status, told.get("message", "") if isinstance(told, dict) else "no object")
    return told


def answered(function: Callable[..., Any], *arguments: Any, **named: Any) -> tuple[int, bytes]:
    """The status and the bytes of an answer, whatever it says."""
    from kubernetes.client.exceptions import ApiException
    from urllib3.exceptions import HTTPError

    try:
        answer = function(*arguments, **named, _preload_content=False, _request_timeout=TIMEOUT)
        return answer.status, bytes(answer.data)
    except ApiException as error:
        body = error.body or error.reason or ""
        return error.status or 0, body.encode() if isinstance(body, str) else bytes(body)
    except (HTTPError, OSError) as error:
        raise KubernetesError(0, plain(error)) from None


def plain(error: BaseException) -> str:
    """The last cause, which says what happened without how it was tried."""
    reason = getattr(error, "reason", None)
    return plain(reason) if isinstance(reason, BaseException) else str(error) or type(error).__name__
