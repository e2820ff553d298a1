"""What would a policy do with this trace? A deterministic cluster to try it in."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
