"""Runs on a Kubernetes cluster."""
