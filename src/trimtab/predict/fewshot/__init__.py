"""Predict how long an application takes elsewhere when it has run one to three times (few-shot)."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
