"""Predictions of time, memory and cost: rules and learned models side by side, with intervals and reasons."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
