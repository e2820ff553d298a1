"""On a Ray cluster: the driver of one run. All workers get a place, or none; when one fails, all end.

A guest there: it travels in a package with `holder.py` and `launch.json`, and needs Ray and the standard
library. Its standard output becomes the run's log: what the workers write, and between that its own notes, on
lines that begin with a secret only Trimtab knows. Orders are files in the folder `orders` beside it:
`{"signal": "USR1"}` or `{"stop": 10.0}`, which holds the grace in seconds.
"""

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import OutOfMemoryError, RayActorError, RayError
from ray.util.placement_group import placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

_HERE = Path(__file__).resolve().parent
_LOOK = 0.3  # s until a worker that has nothing to say answers
_GRACE = 5.0  # s the others get to end when one has failed
_STRANGERS_GRACE = 10.0  # s the workers get where somebody stops the job by Ray's own means
_DYING = 4.0  # s in which a command that nobody leads any more has been killed
_PIECE = 65536  # bytes after which a line is passed on in parts
_DEVICES = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")
_KILLED, _TERMINATED, _NOT_STARTED = 137, 143, 127


class RayWorker:
    """One worker of the gang, an actor on its node: starts the command, and says what became of it."""

    def __init__(self, folder: str, lease: float) -> None:
        self._folder, self._lease = folder, lease
        Path(folder, "launch.json").unlink(missing_ok=True)  # people put secrets into environments
        self._heard = time.monotonic()
        self._written, self._ended = b"", False
        self._holder: subprocess.Popen[bytes] | None = None

    def place(self) -> dict[str, Any]:
        """Its node's address, a port that is free there now, and the devices Ray has given it."""
        with socket.socket() as probe:
            probe.bind(("", 0))
            port = int(probe.getsockname()[1])
        devices = {name: os.environ[name] for name in _DEVICES if name in os.environ}
        return {"address": ray.util.get_node_ip_address(), "port": port, "devices": devices}

    def start(self, command: Sequence[str], environment: Mapping[str, str], folder: str) -> None:
        """Start the command; from now on somebody must look within every `lease` seconds."""
        holder = [sys.executable, "-S", os.path.join(self._folder, "holder.py")]
        spec = {"command": list(command), "environment": self._environment(environment), "folder": folder}
        pipe = subprocess.PIPE
        self._holder = subprocess.Popen(
            holder, bufsize=0, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True
        )
        self._tell(json.dumps(spec))
        self._heard = time.monotonic()
        threading.Thread(target=self._end_when_left_alone, daemon=True).start()

    def look(self) -> tuple[bytes, str | None]:
        """Output since the last call, in whole lines, and the exit status; None while the command runs."""
        self._heard = time.monotonic()
        assert self._holder is not None
        assert self._holder.stdout is not None
        assert self._holder.stderr is not None
        answer, output = self._holder.stdout.fileno(), self._holder.stderr.fileno()
        ready = select.select([answer] if self._ended else [answer, output], [], [], _LOOK)[0]
        if output in ready:
            part = os.read(output, _PIECE)
            self._written, self._ended = self._written + part, not part
        elif answer in ready:
            return self._written, self._holder.stdout.readline().decode().strip()
        whole = len(self._written) if len(self._written) > _PIECE else self._written.rfind(b"\n") + 1
        lines, self._written = self._written[:whole], self._written[whole:]
        return lines, None

    def signal(self, name: str) -> None:
        """Pass a signal such as "USR1" on."""
        self._tell(name)

    def _tell(self, line: str) -> None:
        assert self._holder is not None
        assert self._holder.stdin is not None
        with contextlib.suppress(OSError):  # it has ended
            self._holder.stdin.write(line.encode() + b"\n")

    def _environment(self, given: Mapping[str, str]) -> dict[str, str]:
        """The node's own, less the way to this package, and what was given."""
        paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        kept = os.pathsep.join(path for path in paths if path and Path(path).resolve() != Path(self._folder))
        return {**os.environ, "PYTHONPATH": kept, **given}

    def _end_when_left_alone(self) -> None:
        while time.monotonic() < self._heard + self._lease:
            time.sleep(self._lease / 10)
        assert self._holder is not None
        assert self._holder.stdin is not None
        self._holder.stdin.close()


class RayGang:
    """The workers of a run, from the place they wait for to the last one's end."""

    def __init__(self, spec: Mapping[str, Any], interrupted: threading.Event) -> None:
        self._spec = spec
        self._interrupted = interrupted
        self._workers: list[Any] = []
        self._running = dict[Any, int]()  # ranks by what was asked of them
        self._done_orders = set[str]()
        self._outcome: dict[str, Any] | None = None
        self._kill_at = float("inf")
        self._gone_at = 0.0  # when also those that do not answer have ended

    def run(self) -> dict[str, Any]:
        """How it ended, to be noted."""
        places = [node for node, count in self._spec["parts"] for _ in range(count)]
        group = placement_group(
            [self._bundle()] * len(places),
            strategy="PACK",
            bundle_label_selector=[{"ray.io/node-id": node} for node in places],
        )
        try:
            if self._came([group.ready()], places):
                self._start(group, places)
            self._follow()
        except RayActorError as error:
            self._break("lost", f"a worker went away as it began: {_first_line(error)}")
        except RayError as error:
            self._break("failed", f"a worker could not begin: {_first_line(error)}", _NOT_STARTED)
        time.sleep(max(0.0, self._gone_at - time.monotonic()))
        return self._outcome or {"what": "ended", "status": 0, "detail": "status 0"}

    def _bundle(self) -> dict[str, float]:
        spec = self._spec
        bundle = {"CPU": spec["cpus"], "GPU": spec["gpus"], "memory": spec["memory"]}
        return {name: value for name, value in bundle.items() if value > 0} or {"CPU": 0.001}

    def _start(self, group: Any, places: Sequence[str]) -> None:
        spec = self._spec
        actor = ray.remote(RayWorker)
        for index in range(len(places)):
            strategy = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=index)
            options = {"num_cpus": spec["cpus"], "num_gpus": spec["gpus"], "memory": spec["memory"] or None}
            self._workers.append(
                actor.options(scheduling_strategy=strategy, max_concurrency=2, **options).remote(
                    str(_HERE), spec["lease"]
                )
            )
        asked = [worker.place.remote() for worker in self._workers]
        if not self._came(asked, places):
            return
        variables = environments(places, ray.get(asked), whole_devices=spec["gpus"] >= 1)
        starts = [
            worker.start.remote(spec["command"], {**spec["environment"], **own}, spec["folder"])
            for worker, own in zip(self._workers, variables, strict=True)
        ]
        if self._came(starts, places):
            ray.get(starts)
            note(spec["secret"], {"what": "started", "detail": f"workers: {len(places)}"})
            self._running = {worker.look.remote(): rank for rank, worker in enumerate(self._workers)}

    def _came(self, answers: Sequence[Any], places: Sequence[str]) -> bool:
        """Wait for all of them; False where the run is to end, or cannot begin, before that."""
        while len(ray.wait(list(answers), num_returns=len(answers), timeout=_LOOK)[0]) < len(answers):
            self._take_orders()
            gone = set(places) - {node["NodeID"] for node in ray.nodes() if node["Alive"]}
            if gone:
                self._break("lost", f"the node {min(gone)} went away before it began")
            if self._outcome is not None:
                return False
        return True

    def _follow(self) -> None:
        """Until the last worker has ended."""
        while self._running:
            done, _ = ray.wait(list(self._running), num_returns=1, timeout=_LOOK)
            for answer in done:
                self._heard(answer, self._running.pop(answer))
            self._take_orders()
            if time.monotonic() > self._kill_at:
                self._signal("KILL")
                self._kill_at = float("inf")

    def _heard(self, answer: Any, rank: int) -> None:
        try:
            lines, end = ray.get(answer)
        except OutOfMemoryError:
            self._break("failed", f"Ray killed worker {rank} for want of memory", _KILLED)
            self._gone_at = time.monotonic() + _DYING
            return
        except RayActorError as error:
            self._break("lost", f"worker {rank} went away: {_first_line(error)}")
            return
        sys.stdout.write(lines.decode(errors="replace"))
        sys.stdout.flush()
        if end is None:
            self._running[self._workers[rank].look.remote()] = rank
        elif not end.isdigit():
            why = end or f"the process beside worker {rank} was killed"
            self._break("failed", why, _NOT_STARTED if end else _KILLED)
        elif end != "0":
            self._break("failed", f"status {end} of worker {rank}", int(end))

    def _break(self, what: str, detail: str, status: int = 0, grace: float = _GRACE) -> None:
        """The gang is no more, for the first reason there is: those that still run are asked to end."""
        if self._outcome is None:
            self._outcome = {"what": what, "status": status, "detail": detail}
            self._kill_at = time.monotonic() + grace
            self._signal("TERM")
        if what == "lost":
            self._gone_at = time.monotonic() + 1.1 * self._spec["lease"] + _DYING

    def _signal(self, name: str) -> None:
        for rank in self._running.values():
            self._workers[rank].signal.remote(name)

    def _take_orders(self) -> None:
        for name, order in _orders(self._done_orders):
            self._done_orders.add(name)
            if "stop" in order:
                self._break("ended", "stopped", grace=order["stop"])
                self._kill_at = min(self._kill_at, time.monotonic() + order["stop"])
            else:
                self._signal(order["signal"])
        if self._interrupted.is_set():
            self._break("failed", "somebody else stopped it in Ray", _TERMINATED, _STRANGERS_GRACE)


def environments(
    nodes: Sequence[str], given: Sequence[Mapping[str, Any]], whole_devices: bool
) -> list[dict[str, str]]:
    """The variables of each worker, by rank.

    Whole devices of a run on a node are seen by all its workers there, in order of their local ranks, because
    programs choose theirs by local rank; of a shared one, only that one is seen.
    """
    first = given[0]
    shared = {"MASTER_ADDR": str(first["address"]), "MASTER_PORT": str(first["port"])}
    found = []
    for rank, node in enumerate(nodes):
        own = {"RANK": str(rank), "WORLD_SIZE": str(len(nodes)), "LOCAL_RANK": str(nodes[:rank].count(node))}
        beside = [each["devices"] for each, other in zip(given, nodes, strict=True) if other == node]
        if whole_devices:
            own |= {name: ",".join(each[name] for each in beside) for name in given[rank]["devices"]}
        found.append({**shared, **own})
    return found


def note(secret: str, what: Mapping[str, Any]) -> None:
    """Say something to Trimtab in the midst of the log."""
    sys.stdout.write(f"\n{secret} {json.dumps({'time': time.time(), **what})}\n")
    sys.stdout.flush()


def _orders(done: set[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path in sorted((_HERE / "orders").glob("*.json")):
        if path.name not in done:
            yield path.name, json.loads(path.read_text())


def _first_line(error: BaseException) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


def main() -> None:
    """The driver's whole life."""
    spec = json.loads((_HERE / "launch.json").read_text())
    (_HERE / "launch.json").unlink()
    note(spec["secret"], {"what": "driver"})
    ray.init(address="auto", log_to_driver=False, logging_level="ERROR")
    interrupted = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: interrupted.set())
    outcome = RayGang(spec, interrupted).run()
    note(spec["secret"], outcome)
    sys.exit(min(outcome.get("status", 0), 255) or int(outcome["what"] == "lost"))


if __name__ == "__main__":
    main()
