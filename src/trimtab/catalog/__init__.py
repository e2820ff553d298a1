"""What can I rent, what is it made of, what does it cost? Accelerator facts, offers, imported price lists."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
