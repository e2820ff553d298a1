"""Resource requests of the stages of a machine-learning pipeline: reads, runs, sizes and writes pipelines."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
