"""What did people really submit? Readers of published traces and of one's own, behind one function."""

from trimtab.schedule.traces.registry import READERS, read_trace, read_traces, trace_names
from trimtab.schedule.traces.trace import ANY_KIND, SECONDS_ANYWHERE, Trace

__all__ = ["ANY_KIND", "READERS", "SECONDS_ANYWHERE", "Trace", "read_trace", "read_traces", "trace_names"]
