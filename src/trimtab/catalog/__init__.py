"""Accelerator facts with their calibration, offers, imported price lists: what can I rent, at what price?"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
