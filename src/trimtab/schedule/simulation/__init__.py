"""Simulation of a cluster: traces replayed under a policy, in a world of measured or declared speeds."""
