"""How does the traffic survive a dead link? One virtual device over two uplinks, and who moves it."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
