"""What would happen if…? Rules and, beside them, learned models: estimates with ranges and reasons."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
