"""Trimtab's server and scheduler in a process of their own: `python dashboard_server.py URL_OF_THE_STORE`.

Prints the port, and ends when its standard input does.
"""

import sys
import threading

from trimtab.engines import engine
from trimtab.schedule import LoopSettings, Scheduler, only_scheduler, policy
from trimtab.serve.api import build
from trimtab.serve.listening import listening
from trimtab.serve.settings import Settings
from trimtab.store import Store, open_store


def main() -> None:
    """Serve and schedule on this machine."""
    with open_store(sys.argv[1]) as store, only_scheduler(store) as post:
        where, end = engine("local://"), threading.Event()

        def make(under: Store) -> Scheduler:
            often = LoopSettings(round=0.5, look=0.2)
            return Scheduler(under, where, policy("trimtab"), "trimtab", often, address="local://")

        thread = threading.Thread(target=post.hold, args=(make, end))
        thread.start()
        with listening(
            build(store, Settings(listen="127.0.0.1:0")), Settings(listen="127.0.0.1:0")
        ) as server:
            print(server.port, flush=True)
            sys.stdin.read()
        end.set()
        thread.join()


if __name__ == "__main__":
    main()
