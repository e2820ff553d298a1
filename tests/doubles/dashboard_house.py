"""A dashboard with something in it: a real server over a real store, and a real browser."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trimtab.core import Host, Profile, Series, Steps, Workload
from trimtab.predict import BUNDLED_STEPS, read_measurements
from trimtab.store import Store, open_store

ATTACK = "<img src=x onerror=alert(1)><script>alert(2)</script>"
_PATIENCE = 90.0


def profile_of(name: str = "resnet50", id: str = "profile-resnet50") -> Profile:
    """Profile of a measured model on two CPU cores."""
    row = next(r for r in read_measurements(BUNDLED_STEPS) if r.name == "resnet50" and r.device == "cpu")
    steps = Steps((row.seconds or 1.0,) * 5, row.batch, 1, "cpu", dataset_length=100_000, epochs=10.0)
    return Profile(
        id=id,
        created=time.time(),
        workload=Workload(name, command=("python", "-c", "print(6 * 7)")),
        host=Host("a CPU", 2.0, 16e9),
        window=30.0,
        every=1.0,
        method="process-tree",
        ended="interrupted",
        status=130,
        series=Series(time=(0.0, 1.0), cpu=(2.0, 2.0), memory=(1e9, 2e9)),
        model=row.model,
        steps=steps,
    )


@dataclass(slots=True)
class House:
    """A server, its store, and a browser; page errors and requests to other hosts are `problems`."""

    port: int
    environment: dict[str, str]
    store: Store
    chromium: Any
    problems: list[str] = field(default_factory=list)

    @property
    def url(self) -> str:
        """URL of the first page."""
        return f"http://127.0.0.1:{self.port}"

    @contextmanager
    def visitor(self, width: int = 1280, scheme: str = "light") -> Iterator[Any]:
        """A page of a new browser context, without cookies."""
        context = self.chromium.new_context(
            viewport={"width": width, "height": 800}, color_scheme=scheme, reduced_motion="reduce"
        )
        context.set_default_timeout(_PATIENCE * 1000 / 2)
        page = context.new_page()
        page.on("pageerror", lambda error: self.problems.append(f"{page.url}: {error}"))
        page.on("dialog", lambda dialog: self.problems.append(f"{page.url}: a dialog, {dialog.message}"))
        page.on("console", lambda message: self._note_error(page.url, message))
        page.on("request", lambda request: self._note_request(request.url))
        try:
            yield page
        finally:
            context.close()

    def _note_error(self, url: str, message: Any) -> None:
        if message.type == "error" and "429" not in message.text and "401" not in message.text:
            self.problems.append(f"{url}: {message.text}")

    def _note_request(self, url: str) -> None:
        if not url.startswith((self.url, self.url.replace("http", "ws"), "data:")):
            self.problems.append(f"fetched from another host: {url}")


def faults(page: Any) -> list[str]:
    """Violations that axe finds on a page."""
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(page).response["violations"]
    return [f"{page.url} {each['id']}: {each['nodes'][0]['html'][:200]}" for each in found]


def until(true: Callable[[], Any], what: str) -> Any:
    """Wait for a condition and return its value."""
    end = time.monotonic() + _PATIENCE
    while not (found := true()):
        assert time.monotonic() < end, f"timed out waiting for: {what}"
        time.sleep(0.1)
    return found


@contextmanager
def open_house(folder: Path, chromium: Any) -> Iterator[House]:
    """Everything, from a folder of its own; all of it is gone afterwards."""
    url = f"sqlite:///{folder / 'store.sqlite'}"
    environment = {**os.environ, "TRIMTAB_HOME": str(folder / "home"), "TRIMTAB_STORE": url}
    log = folder / "log"
    command = [
        str(Path(sys.executable).with_name("trimtab")),
        "up",
        "--listen",
        "127.0.0.1:0",
        "--round",
        "0.5",
    ]
    with open_store(url) as store, log.open("wb") as said:
        process = subprocess.Popen(command, env=environment, cwd=folder, stderr=said)
        try:
            port = until(lambda: _port(log, process), "the server's address")
            yield House(port, environment, store, chromium)
        finally:
            _stop_jobs(store)
            process.terminate()
            process.wait(timeout=60)


def _port(log: Path, process: subprocess.Popen[bytes]) -> int | None:
    assert process.poll() is None, log.read_text()
    found = re.search(r"dashboard at http://127\.0\.0\.1:(\d+)", log.read_text())
    return int(found[1]) if found else None


def _stop_jobs(store: Store) -> None:
    from trimtab.core import RealClock, TrimtabError
    from trimtab.schedule import cancel_job

    for record in store.jobs.active():
        try:
            cancel_job(store, record.id, RealClock())
        except TrimtabError:
            continue
    until(lambda: not store.jobs.active(), "the end of all jobs")


def furnish(store: Store, hostile: str = ATTACK) -> None:
    """Real operations, with texts that would like to be markup."""
    from trimtab.serve.access import LOCAL
    from trimtab.serve.operations import Backend, Service

    service = Service(Backend(store), LOCAL)
    service.profiles.save(profile_of(hostile, "profile-attack"))
    service.profiles.save(profile_of())
    until(lambda: service.fleet.now().there, "the scheduler")
    none = {"resources": {"gpus": 0, "cpus": 0.1}}
    records = service.jobs.submit(
        [
            {"name": "counts", "command": ["sh", "-c", f"echo '{hostile}'; echo counted"], **none},
            {"name": "fails", "command": "false", **none},
            {"name": "goes-on", "command": "sleep 600", **none},
            {"name": "waits", "command": "true", "resources": {"gpus": 0, "cpus": _all_cpus(service)}},
        ]
    )
    made = service.decisions.get(service.recommendations.make("profile-resnet50", top=30)["decision"])
    time_taken, cost = (made.estimates[name].value for name in ("time", "cost"))
    service.decisions.record_outcome(made.id, {"time": 1.1 * time_taken, "cost": 1.1 * cost}, hostile)
    service.recommendations.make("profile-attack", top=5)
    until(lambda: service.jobs.get(records[0].id).state.final, "the end of a job")
    until(lambda: service.jobs.get(records[1].id).state.final, "the failure of a job")
    until(lambda: service.jobs.get(records[2].id).state.value == "running", "a job that runs")


def _all_cpus(service: Any) -> float:
    return max(float(group.cpus) for group in service.fleet.now().groups)
