"""Linux: one codec for cgroups v1 and v2, `/proc`, namespaces, files, locks, memory traps, the watchdog."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
