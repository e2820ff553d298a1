"""Functions as a cloud runs them: made up from segments, run in control groups, measured."""
