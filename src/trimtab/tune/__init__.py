"""Which configuration to try next: searches that learn from trials, and ours also from other workloads."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
