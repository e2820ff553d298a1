"""Fixtures of a small made-up data set of training jobs."""

from small_training_data import data, folder, jobs, rows, write

__all__ = ["data", "folder", "jobs", "rows", "write"]
