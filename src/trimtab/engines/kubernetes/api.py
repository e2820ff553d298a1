"""The Kubernetes API through its official client: finding the cluster, calls, a watch on a list of objects.

A watch starts from one list and continues from its resource version; objects stay known while the server
cannot be reached.
"""

import atexit
import contextlib
import json
import logging
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Generic, Self, TypeVar

from trimtab.core import BadInputError, MissingDependencyError, TrimtabError

TIMEOUT = 10.0
"""Seconds for an answer."""


class KubernetesError(TrimtabError):
    """The API server refuses (`status` is its HTTP status), or does not answer (0)."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(
            f"the Kubernetes API answers {status}: {message}"
            if status
            else f"the Kubernetes API does not answer: {message}"
        )
        self.status = status
        self.message = message


def api_client() -> Any:
    """The client, configured by KUBECONFIG or the user's own file; in a pod, by its service account."""
    try:
        from kubernetes import client, config
    except ImportError:
        raise MissingDependencyError(
            "the Python client of Kubernetes is not installed; run: pip install 'trimtab[kubernetes]'"
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
            f"no Kubernetes cluster is configured: {why}; set KUBECONFIG to its configuration file, or run "
            "in a pod with a service account"
        ) from None
    return client.ApiClient(configuration)


def core_api() -> Any:
    """The client's `CoreV1Api`."""
    configured = api_client()
    from kubernetes.client import CoreV1Api

    return CoreV1Api(configured)


def call_api(function: Callable[..., Any], *arguments: Any, **named: Any) -> dict[str, Any]:
    """Call a function of the client; returns the answer as plain data, or raises `KubernetesError`."""
    status, body = raw_answer(function, *arguments, **named)
    try:
        answer = json.loads(body)
    except ValueError:
        answer = {"message": body.decode(errors="replace")[:200]}
    if not 200 <= status < 300 or not isinstance(answer, dict):
        raise KubernetesError(status, answer.get("message", "") if isinstance(answer, dict) else "no object")
    return answer


def raw_answer(function: Callable[..., Any], *arguments: Any, **named: Any) -> tuple[int, bytes]:
    """HTTP status and body of an answer, also of a refusal."""
    from kubernetes.client.exceptions import ApiException
    from urllib3.exceptions import HTTPError

    try:
        answer = function(*arguments, **named, _preload_content=False, _request_timeout=TIMEOUT)
        return answer.status, bytes(answer.data)
    except ApiException as error:
        body = error.body or error.reason or ""
        return error.status or 0, body.encode() if isinstance(body, str) else bytes(body)
    except (HTTPError, OSError) as error:
        raise KubernetesError(0, root_cause(error)) from None


def root_cause(error: BaseException) -> str:
    """The message of the innermost cause, without the attempts around it."""
    reason = getattr(error, "reason", None)
    return root_cause(reason) if isinstance(reason, BaseException) else str(error) or type(error).__name__


log = logging.getLogger(__name__)

T = TypeVar("T")
Read = Callable[[Mapping[str, Any]], Mapping[str, T]]

_WATCH = 300  # s after which the server ends a watch, and the next one begins
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 30.0  # s before the server is asked again
_EXPIRED = 410  # the resource version to continue from is too old


class ObjectWatch(Generic[T]):
    """Objects that a function of the client lists, kept up to date; `read` selects the parts to keep.

    `meanwhile` ends the sentence that is logged when the server stops answering.
    """

    def __init__(
        self, function: Any, *arguments: Any, read: Read[T], meanwhile: str, **selectors: str
    ) -> None:
        self._request = (function, *arguments)
        self._selectors = selectors
        self._read, self._meanwhile = read, meanwhile
        self._watch: Any = None
        self._ended = threading.Event()
        self.objects: Mapping[str, T] = {}
        self.changes = 0  # number of changes of `objects`
        self.away: KubernetesError | None = None  # why `objects` is not up to date

    def __enter__(self) -> Self:
        """Raises `KubernetesError` if the first list is refused; later failures are retried."""
        version = self._list()
        atexit.register(self._ended.set)  # a thread that logs while the interpreter ends aborts the process
        threading.Thread(target=self._follow, args=(version,), daemon=True).start()
        return self

    def __exit__(self, *raised: object) -> None:
        atexit.unregister(self._ended.set)
        self._ended.set()
        if self._watch is not None:
            self._watch.stop()

    def _list(self) -> str:
        """Read all objects; returns the resource version to continue from."""
        function, *arguments = self._request
        answer = call_api(function, *arguments, **self._selectors)
        with _documented_shape():
            objects = dict[str, T]()
            for item in answer.get("items") or ():
                objects |= self._read(item)
            version = str(answer["metadata"]["resourceVersion"])
        self.objects = objects
        self.changes += 1
        return version

    def _follow(self, version: str | None) -> None:
        """Watch until the end; list again whenever the watch cannot continue from its version."""
        pause = _FIRST_PAUSE
        while not self._ended.is_set():
            try:
                if version is None:
                    version = self._list()
                if self.away is not None:
                    log.warning("the Kubernetes API answers again")
                self.away = None
                version = self._read_changes(version)
                pause = _FIRST_PAUSE
            except KubernetesError as error:
                version = None
                if error.status != _EXPIRED and not self._ended.is_set():
                    if self.away is None:
                        log.warning(f"{error}; {self._meanwhile}")
                    pause, self.away = min(2 * pause, _LONGEST_PAUSE), error
            self._ended.wait(pause)

    def _read_changes(self, version: str) -> str:
        """Apply changes until the server ends the watch; returns the version to continue from."""
        from kubernetes.client.exceptions import ApiException
        from kubernetes.watch import Watch
        from urllib3.exceptions import HTTPError, ProtocolError, ReadTimeoutError

        watch = self._watch = Watch(return_type="object")
        function, *arguments = self._request
        try:
            for event in watch.stream(
                function,
                *arguments,
                **self._selectors,
                resource_version=version,
                allow_watch_bookmarks=True,
                timeout_seconds=_WATCH,
                _request_timeout=(TIMEOUT, _WATCH + TIMEOUT),
            ):
                if self._ended.is_set():
                    break
                if event is not None:
                    self._apply(event)
        except ApiException as error:
            raise KubernetesError(error.status or 0, str(error.reason or "")) from None
        except (ProtocolError, ReadTimeoutError):
            pass  # the connection was cut; the next watch continues from there
        except (HTTPError, OSError) as error:
            raise KubernetesError(0, root_cause(error)) from None
        return str(watch.resource_version or version)

    def _apply(self, event: Mapping[str, Any]) -> None:
        before = self.objects
        with _documented_shape():
            kind, answer = event["type"], event["raw_object"]
            if kind in ("ADDED", "MODIFIED"):
                self.objects = {**before, **self._read(answer)}
            elif kind == "DELETED":
                deleted = self._read(answer)
                self.objects = {name: item for name, item in before.items() if name not in deleted}
        if self.objects != before:
            self.changes += 1


@contextlib.contextmanager
def _documented_shape() -> Iterator[None]:
    try:
        yield
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        why = f"{type(error).__name__} {error}"
        raise KubernetesError(0, f"its answer does not have the documented fields ({why})") from None
