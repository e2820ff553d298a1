"""What a cut takes: seconds and bytes, by formulas and by playing the schedule through."""
