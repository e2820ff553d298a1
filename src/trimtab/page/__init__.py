"""How does it look? One HTML page that needs nothing else: offline, in the dark, without JavaScript."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
