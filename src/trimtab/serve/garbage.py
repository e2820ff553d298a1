"""Looking for garbage takes time in which nobody is answered."""

import gc

_NEW_ONES = 20_000
"""Objects more than were freed, after which the new ones are looked through."""


def settled() -> None:
    """What is there now stays: it is not looked through again. What comes is looked through less often."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_NEW_ONES, 20, 100)
