"""gRPC, without its own lines about connections that break: whoever uses it says so in one sentence."""

import os

os.environ.setdefault("GRPC_VERBOSITY", "NONE")

import grpc
import grpc.aio

__all__ = ["grpc"]
