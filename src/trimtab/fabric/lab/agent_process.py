"""A host's agent as a process inside a host of a lab, until SIGTERM: `agent_process HOST.yaml`."""

import signal
import sys
from pathlib import Path

from trimtab.core import TrimtabError
from trimtab.fabric.agent import agent_of
from trimtab.fabric.host_file import read_host

if __name__ == "__main__":
    try:
        with agent_of(read_host(Path(sys.argv[1]))) as agent:
            signal.signal(signal.SIGTERM, lambda number, frame: agent.stop())
            agent.run()
    except TrimtabError as error:
        sys.exit(str(error))
