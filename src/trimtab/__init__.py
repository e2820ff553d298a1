"""Trimtab measures deep-learning workloads, predicts them on any hardware, and trims what they are given."""

__version__ = "0.1.0"
