"""Runs at the start of every Python below `trimtab profile`: starts the listener, then the user's own file.

This folder is in front of PYTHONPATH, so Python imports this `sitecustomize` rather than another one that may
exist further down the path; that one is run from here. Code in this folder uses the standard library and the
user's own PyTorch only, and may be run by any Python from 3.8 on.
"""

import importlib.machinery
import importlib.util
import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))


def _start() -> None:
    try:
        import trimtab_listener  # type: ignore[import-not-found]

        trimtab_listener.start()
    except Exception:
        pass  # whatever is wrong with the listener, the user's script must run


def _elsewhere() -> "list[str]":
    return [entry for entry in sys.path if os.path.abspath(entry or ".") != _HERE]


def _run_the_users_own() -> None:
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", _elsewhere())
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


_start()
sys.path[:] = _elsewhere()
_run_the_users_own()
