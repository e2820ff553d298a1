"""Base of the small Kubernetes API servers of the tests: versions, watches, JSON over HTTP."""

import contextlib
import json
import socket
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Fits = Callable[[dict[str, Any]], bool]


class SmallServer:
    """Every change has a version, and is told to those who watch.

    A subclass has the objects, and changes them while it holds `changed`.
    """

    def __init__(self, handler: type["SmallHandler"]) -> None:
        self.version = 100
        self.oldest = 0  # version from which a watch can go on
        self.events: list[tuple[int, str, dict[str, Any]]] = []
        self.changed = threading.Condition()
        self.streams: list[socket.socket] = []
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (handler,), {"api": self}))
        self._http.daemon_threads = True
        self.address = f"http://127.0.0.1:{self._http.server_port}"
        threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True).start()

    def tell(self, event: str, told: dict[str, Any]) -> None:
        """An object is ADDED, MODIFIED or DELETED."""
        with self.changed:
            self.version += 1
            told["metadata"]["resourceVersion"] = str(self.version)
            told["metadata"].setdefault("uid", f"uid-{self.version}")
            self.events.append((self.version, event, json.loads(json.dumps(told))))
            self.changed.notify_all()

    def later_than(self, version: int) -> list[tuple[int, str, dict[str, Any]]]:
        """Changes since a version, as soon as there is one; none after a timeout."""
        with self.changed:
            self.changed.wait_for(lambda: self.version > version, timeout=30)
            return [event for event in self.events if event[0] > version]

    def forget_history(self) -> None:
        """Forget earlier versions: they can no longer be watched, and open watches are closed."""
        with self.changed:
            self.oldest = self.version
            self.events.clear()
        self.drop()

    def drop(self) -> None:
        """Cut everyone off."""
        for stream in list(self.streams):
            with contextlib.suppress(OSError):  # they have hung up
                stream.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()
        self.drop()


class SmallHandler(BaseHTTPRequestHandler):
    """Answers in JSON; a subclass knows the paths."""

    api: Any
    protocol_version = "HTTP/1.1"

    def log_message(self, *arguments: object) -> None:
        pass

    def body(self) -> dict[str, Any]:
        text = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        told: dict[str, Any] = json.loads(text or "{}")
        return told

    def list(self, kind: str, objects: Mapping[Any, dict[str, Any]], fits: Fits) -> None:
        """Objects that fit, and the version at which they were all there was."""
        with self.api.changed:
            version = {"resourceVersion": str(self.api.version)}
            items = [told for told in objects.values() if fits(told)]
        self.answer(200, {"kind": f"{kind}List", "apiVersion": "v1", "metadata": version, "items": items})

    def stream(self, version: int, fits: Fits) -> None:
        """Stream changes of matching objects after a version, until the client disconnects."""
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.api.streams.append(self.connection)
        self.close_connection = True
        try:
            if version < self.api.oldest:
                gone = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
                self._chunk({"type": "ERROR", "object": gone})
                return
            while new := self.api.later_than(version):
                for _, event, told in new:
                    if fits(told):
                        self._chunk({"type": event, "object": told})
                version = new[-1][0]
        except OSError:
            pass  # they have hung up
        finally:
            self.api.streams.remove(self.connection)

    def refuse(self, status: int, message: str) -> None:
        self.answer(status, {"kind": "Status", "apiVersion": "v1", "code": status, "message": message})

    def answer(self, status: int, told: Any) -> None:
        self.answer_bytes(status, json.dumps(told).encode())

    def answer_bytes(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _chunk(self, told: dict[str, Any]) -> None:
        line = json.dumps(told).encode() + b"\n"
        self.wfile.write(f"{len(line):x}\r\n".encode() + line + b"\r\n")
        self.wfile.flush()
