"""Readers of traces: published ones, and CSV files of one's own."""
