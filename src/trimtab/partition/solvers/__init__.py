"""Who chooses the cut."""
