from .case import (
    METRICS as METRICS,
    Array as Array,
    Case as Case,
    Corpus as Corpus,
    metrics_table as metrics_table,
    settings_table as settings_table,
)
