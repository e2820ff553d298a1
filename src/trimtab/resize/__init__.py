"""CPU and memory of containers, set every 100 ms: pools, policies, allocation, agents, their controller."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
