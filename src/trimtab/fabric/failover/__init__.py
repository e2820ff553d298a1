"""Which path carries the traffic now? Failures heard at once, routes written at once, flapping held off."""
