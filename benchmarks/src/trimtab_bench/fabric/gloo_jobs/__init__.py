"""Real training jobs whose ranks run anywhere: followed, killed, started again, and what that costs."""
