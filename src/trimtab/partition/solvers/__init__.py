"""Solvers that choose a plan's cut."""
