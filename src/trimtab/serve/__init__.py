"""How is it run? Its settings, whether this machine is fit for it, and what it serves."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
