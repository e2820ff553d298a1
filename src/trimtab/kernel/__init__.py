"""How do we talk to Linux? cgroups v1 and v2 and `/proc`: the one place that knows their file formats."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
