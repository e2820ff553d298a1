"""Which configuration should I rent? Ranked configurations with ranges and reasons, and their decision."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
