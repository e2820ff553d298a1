"""The vocabulary: workloads, profiles, offers, decisions, engines; units, errors and time. No I/O."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
