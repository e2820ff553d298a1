"""HTML reports in one file each, which work offline, in dark mode and without JavaScript."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
