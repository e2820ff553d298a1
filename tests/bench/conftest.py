"""Fixtures that the few-shot bench shares with the few-shot predictors."""

from fewshot_cases import make_case, write_csv

__all__ = ["make_case", "write_csv"]
