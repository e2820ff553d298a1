"""What should each stage of a machine-learning pipeline ask for? Reads, runs, sizes and writes pipelines."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
