"""A controller for many nodes, and their agents: packed messages over gRPC streams with mutual TLS."""

import os

# Set before gRPC is imported: its own log lines about broken connections repeat what our errors say.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
