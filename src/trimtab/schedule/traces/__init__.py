"""What did people really submit? Readers of published traces and of one's own, behind one function."""

from trimtab.schedule.traces.registry import READERS, read_trace, read_traces, trace_names
from trimtab.schedule.traces.trace import ANY_KIND, Trace

__all__ = ["ANY_KIND", "READERS", "Trace", "read_trace", "read_traces", "trace_names"]
