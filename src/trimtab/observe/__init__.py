"""Profiles of workloads: runs a command, samples its resources, listens to PyTorch from inside."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
