"""Graphs of models, captured without the memory of their weights."""
