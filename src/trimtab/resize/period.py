"""How often a node looks at its containers, and glances at them in between."""

PERIOD = 0.1  # s between two looks
GLANCES = 4  # in a period
