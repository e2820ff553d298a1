"""The driver of one run on a Ray cluster. All workers get a place, or none; when one fails, all end.

It is uploaded in a package with `holder.py` and `launch.json`, and needs only Ray and the standard library.
Its standard output becomes the run's log: the workers' output, and its own notes on lines that begin with a
secret only Trimtab knows. Orders are files in the folder `orders` next to it:
`{"signal": "USR1"}`, `{"stop": 10.0}`, which holds the grace in seconds, or `{"execute": […],
"timeout": 60.0, "name": …}`, a command to run beside the first worker.
"""

import contextlib
import json
import os
import re
import select
import signal
import socket
import stat
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
_LOOK = 0.3  # s until a worker without output answers
_GRACE = 5.0  # s the others get to end when one has failed
_RAY_STOP_GRACE = 10.0  # s the workers get to end when the job is stopped in Ray, not by Trimtab
_DYING = 4.0  # s in which a command without a driver has been killed
_PIECE = 65536  # bytes after which a line is passed on in parts
_DEVICES = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")
_KILLED, _TERMINATED, _NOT_STARTED = 137, 143, 127


class RayWorker:
    """One worker of the gang, an actor on its node: runs the command, reports its output and exit status."""

    def __init__(self, folder: str, lease: float, inherited: Sequence[str], prefix: str) -> None:
        self._folder, self._lease = folder, lease
        self._inherited, self._prefix = frozenset(inherited), prefix
        Path(folder, "launch.json").unlink(missing_ok=True)  # people put secrets into environments
        self._heard = time.monotonic()
        self._written, self._ended = b"", False
        self._holder: subprocess.Popen[bytes] | None = None

    def place(self) -> dict[str, Any]:
        """Its node's address, a free port there, and the devices that Ray has assigned to it."""
        with socket.socket() as probe:
            probe.bind(("", 0))
            port = int(probe.getsockname()[1])
        devices = {name: os.environ[name] for name in _DEVICES if name in os.environ}
        return {"address": ray.util.get_node_ip_address(), "port": port, "devices": devices}

    def start(self, command: Sequence[str], environment: Mapping[str, str], folder: str) -> None:
        """Start the command; it is ended unless `look` is called within every `lease` seconds."""
        self._spec = {"environment": self._environment(environment), "folder": folder}
        self._holder = self._hold(command, subprocess.PIPE)
        self._heard = time.monotonic()
        threading.Thread(target=self._end_without_driver, daemon=True).start()

    def execute(self, command: Sequence[str], timeout: float) -> dict[str, Any]:
        """Run a command with the worker's environment; `status` is None if it has not ended in time."""
        with self._hold(command, subprocess.DEVNULL) as holder:  # which ends the command at the latest here
            assert holder.stdout is not None
            answered = select.select([holder.stdout], [], [], timeout)[0]
            answer = holder.stdout.readline().decode().strip() if answered else ""
            assert holder.stdin is not None
            holder.stdin.close()
        status = int(answer) if answer.isdigit() else None
        return {"status": status, "problem": "" if answer.isdigit() else answer}

    def _hold(self, command: Sequence[str], output: int) -> "subprocess.Popen[bytes]":
        """A holder process that runs a command."""
        holder = subprocess.Popen(
            [sys.executable, "-S", os.path.join(self._folder, "holder.py")],
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=output,
            start_new_session=True,
        )
        assert holder.stdin is not None
        with contextlib.suppress(OSError):
            holder.stdin.write(json.dumps({"command": list(command), **self._spec}).encode() + b"\n")
        return holder

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
        length = len(self._written) if len(self._written) > _PIECE else self._written.rfind(b"\n") + 1
        lines, self._written = self._written[:length], self._written[length:]
        return lines, None

    def signal(self, name: str) -> None:
        """Send the command a signal such as "USR1"."""
        self._tell(name)

    def _tell(self, line: str) -> None:
        assert self._holder is not None
        assert self._holder.stdin is not None
        with contextlib.suppress(OSError):  # it has ended
            self._holder.stdin.write(line.encode() + b"\n")

    def _environment(self, launch_variables: Mapping[str, str]) -> dict[str, str]:
        """Inheritable variables of the node, without the path to this package; the launch's variables."""
        own = {
            name: value
            for name, value in os.environ.items()
            if (name in self._inherited or name.startswith(self._prefix))
            and not re.search(r"://[^/\s]*@", value)
        }
        paths = own.get("PYTHONPATH", "").split(os.pathsep)
        others = [path for path in paths if path and Path(path).resolve() != Path(self._folder)]
        return {**own, "PYTHONPATH": os.pathsep.join(others), **launch_variables}

    def _end_without_driver(self) -> None:
        while time.monotonic() < self._heard + self._lease:
            time.sleep(self._lease / 10)
        assert self._holder is not None
        assert self._holder.stdin is not None
        self._holder.stdin.close()


class RayGang:
    """The workers of a run, from the wait for their places to the end of the last one."""

    def __init__(self, spec: Mapping[str, Any], interrupted: threading.Event) -> None:
        self._spec = spec
        self._interrupted = interrupted
        self._workers: list[Any] = []
        self._running = dict[Any, int]()  # ranks by pending answer
        self._done_orders = set[str]()
        self._executions = dict[Any, str]()  # names of commands by pending answer
        self._outcome: dict[str, Any] | None = None
        self._kill_at = float("inf")
        self._dropped = 0  # bytes of output that the log's limit has dropped
        self._ended_at = 0.0  # when workers that do not answer have ended, too

    def run(self) -> dict[str, Any]:
        """Run to the end; returns the note of how it ended."""
        places = [node for node, count in self._spec["parts"] for _ in range(count)]
        group = placement_group(
            [self._bundle()] * len(places),
            strategy="PACK",
            bundle_label_selector=[{"ray.io/node-id": node} for node in places],
        )
        try:
            if self._arrived([group.ready()], places):
                self._start(group, places)
            self._follow()
        except RayActorError as error:
            self._break("lost", f"a worker was lost while it started: {_first_line(error)}")
        except RayError as error:
            self._break("failed", f"a worker could not start: {_first_line(error)}", _NOT_STARTED)
        time.sleep(max(0.0, self._ended_at - time.monotonic()))
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
                actor.options(scheduling_strategy=strategy, max_concurrency=3, **options).remote(
                    str(_HERE), spec["lease"], spec["inherited"], spec["inherited_prefix"]
                )
            )
        answers = [worker.place.remote() for worker in self._workers]
        if not self._arrived(answers, places):
            return
        variables = environments(places, ray.get(answers), whole_devices=spec["gpus"] >= 1)
        starts = [
            worker.start.remote(spec["command"], {**spec["environment"], **own}, spec["folder"])
            for worker, own in zip(self._workers, variables, strict=True)
        ]
        if self._arrived(starts, places):
            ray.get(starts)
            note(spec["secret"], {"what": "started", "detail": f"workers: {len(places)}"})
            self._running = {worker.look.remote(): rank for rank, worker in enumerate(self._workers)}

    def _arrived(self, answers: Sequence[Any], places: Sequence[str]) -> bool:
        """Wait for all answers; False if the run has to end, or cannot start, before that."""
        while len(ray.wait(list(answers), num_returns=len(answers), timeout=_LOOK)[0]) < len(answers):
            self._take_orders()
            lost_nodes = set(places) - {node["NodeID"] for node in ray.nodes() if node["Alive"]}
            if lost_nodes:
                self._break("lost", f"the node {min(lost_nodes)} was lost before the run started")
            if self._outcome is not None:
                return False
        return True

    def _follow(self) -> None:
        """Pass output and orders on until the last worker has ended."""
        while self._running:
            done, _ = ray.wait(list(self._running), num_returns=1, timeout=_LOOK)
            for answer in done:
                self._handle(answer, self._running.pop(answer))
            self._take_orders()
            self._report_executions()
            if time.monotonic() > self._kill_at:
                self._signal("KILL")
                self._kill_at = float("inf")

    def _handle(self, answer: Any, rank: int) -> None:
        try:
            lines, end = ray.get(answer)
        except OutOfMemoryError:
            self._break("failed", f"out of memory: Ray killed worker {rank}", _KILLED)
            self._ended_at = time.monotonic() + _DYING
            return
        except RayActorError as error:
            self._break("lost", f"worker {rank} was lost: {_first_line(error)}")
            return
        sys.stdout.write(lines.decode(errors="replace"))
        sys.stdout.flush()
        self._dropped = trim_log(sys.stdout.fileno(), self._spec["secret"], self._spec["log"], self._dropped)
        if end is None:
            self._running[self._workers[rank].look.remote()] = rank
        elif not end.isdigit():
            why = end or f"the holder process of worker {rank} was killed"
            self._break("failed", why, _NOT_STARTED if end else _KILLED)
        elif end != "0":
            self._break("failed", f"status {end} of worker {rank}", int(end))

    def _break(self, what: str, detail: str, status: int = 0, grace: float = _GRACE) -> None:
        """End the gang for this reason, unless it has one already; running workers get SIGTERM."""
        if self._outcome is None:
            self._outcome = {"what": what, "status": status, "detail": detail}
            self._kill_at = time.monotonic() + grace
            self._signal("TERM")
        if what == "lost":
            self._ended_at = time.monotonic() + 1.1 * self._spec["lease"] + _DYING

    def _signal(self, name: str) -> None:
        for rank in self._running.values():
            self._workers[rank].signal.remote(name)

    def _execute(self, order: Mapping[str, Any]) -> None:
        if self._running:
            worker = self._workers[min(self._running.values())]
            answer = worker.execute.remote(order["execute"], order["timeout"])
            self._executions[answer] = order["name"]

    def _report_executions(self) -> None:
        done = ray.wait(list(self._executions), timeout=0)[0] if self._executions else []
        for answer in done:
            name = self._executions.pop(answer)
            with contextlib.suppress(RayError):  # the worker was lost, and with it the run
                note(self._spec["secret"], {"what": "executed", "name": name, **ray.get(answer)})

    def _take_orders(self) -> None:
        for name, order in _orders(self._done_orders):
            self._done_orders.add(name)
            if "stop" in order:
                self._break("ended", "stopped", grace=order["stop"])
                self._kill_at = min(self._kill_at, time.monotonic() + order["stop"])
            elif "execute" in order:
                self._execute(order)
            else:
                self._signal(order["signal"])
        if self._interrupted.is_set():
            self._break("failed", "stopped in Ray, not by Trimtab", _TERMINATED, _RAY_STOP_GRACE)


def environments(
    nodes: Sequence[str], places: Sequence[Mapping[str, Any]], whole_devices: bool
) -> list[dict[str, str]]:
    """Variables of each worker, by rank, from its node and its answer to `place`.

    All workers of a run on a node see its whole devices there, in order of local ranks, because programs
    choose theirs by local rank; a worker with a share of a device sees only that one.
    """
    first = places[0]
    shared = {"MASTER_ADDR": str(first["address"]), "MASTER_PORT": str(first["port"])}
    variables = []
    for rank, node in enumerate(nodes):
        own = {"RANK": str(rank), "WORLD_SIZE": str(len(nodes)), "LOCAL_RANK": str(nodes[:rank].count(node))}
        if whole_devices:
            local = [place["devices"] for place, other in zip(places, nodes, strict=True) if other == node]
            own |= {name: ",".join(devices[name] for devices in local) for name in places[rank]["devices"]}
        variables.append({**shared, **own})
    return variables


def note(secret: str, fields: Mapping[str, Any]) -> None:
    """Write a note for Trimtab into the log."""
    sys.stdout.write(f"\n{secret} {json.dumps({'time': time.time(), **fields})}\n")
    sys.stdout.flush()


def trim_log(log: int, secret: str, limit: int, dropped: int) -> int:
    """Keep the notes and about the last `limit` bytes of output; returns the bytes of output dropped so far.

    The note "dropped" says how many are missing before the output that follows it.
    """
    status = os.fstat(log)
    if not stat.S_ISREG(status.st_mode) or status.st_size <= limit * 5 // 4:
        return dropped
    with open(f"/proc/self/fd/{log}", "rb") as file:
        _, *parts = file.read().split(f"\n{secret} ".encode())
    lines = [line for line, _, _ in (part.partition(b"\n") for part in parts)]
    notes = [line for line in lines if json.loads(line)["what"] != "dropped"]
    output = b"".join(part.partition(b"\n")[2] for part in parts)
    kept = output[-limit:].partition(b"\n")[2]
    dropped += len(output) - len(kept)
    notes.append(json.dumps({"what": "dropped", "bytes": dropped}).encode())
    os.ftruncate(log, 0)
    with os.fdopen(os.dup(log), "ab") as file:
        file.write(b"".join(b"\n%s %s\n" % (secret.encode(), line) for line in notes) + kept)
    return dropped


def _orders(done: set[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path in sorted((_HERE / "orders").glob("*.json")):
        if path.name not in done:
            yield path.name, json.loads(path.read_text())


def _first_line(error: BaseException) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


def main() -> None:
    """The main function of the driver."""
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
