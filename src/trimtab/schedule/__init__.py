"""Who runs next, and where? Policies, the queue, and a simulator to try them in."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
