"""Policies by name. One more is one module with a class, and one line here."""
