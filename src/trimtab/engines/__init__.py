"""Where does it run? On this machine, on a cluster, or by files for a tool you already use."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
