"""How long, and for how much, would a distributed training job run under each configuration?

Answered from a short local run of it, from what other jobs did, and from trials of it where there are some.
`read_data` reads data sets, `Ours.fitted` learns, `forecast` answers behind the guard, `next_trial` says
what to try. The thesis' networks and ordinary models are beside it, to be compared with."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
