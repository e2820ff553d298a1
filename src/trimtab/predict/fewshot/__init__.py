"""How long would an application nobody has seen take elsewhere, when it has run one to three times?

Data sets are read by their modules (`multicloud.read(folder)`), a protocol makes folds of them, and
`backtest` takes a predictor through the folds."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
