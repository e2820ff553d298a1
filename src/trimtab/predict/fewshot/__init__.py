"""Few-shot predictions: an application that ran a few times, under other configurations."""
