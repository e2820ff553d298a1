"""How much CPU and memory, right now? Pools, policies, how a cap is shared, and the agent of a node."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
