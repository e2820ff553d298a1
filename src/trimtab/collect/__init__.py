"""Data sets measured here for models to learn from: serverless-style functions, and training jobs."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
