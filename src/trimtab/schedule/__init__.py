"""Scheduling: policies, quotas, the scheduler's loop, and a simulator to try policies in."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
