"""A host's agent as a process of its own, inside a host of a lab: `agent_process HOST.yaml`."""

import signal
import sys
from pathlib import Path

from trimtab.core import TrimtabError
from trimtab.fabric.agent import agent_of
from trimtab.fabric.host_file import read_host


def run(path: Path) -> None:
    """Until SIGTERM."""
    with agent_of(read_host(path)) as agent:
        signal.signal(signal.SIGTERM, lambda number, frame: agent.stop())
        agent.run()


if __name__ == "__main__":
    try:
        run(Path(sys.argv[1]))
    except TrimtabError as error:
        sys.exit(str(error))
