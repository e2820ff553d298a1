"""The folder of data sets as a place to look for traces, and for the speeds that some of them need."""

from collections.abc import Sequence
from pathlib import Path

from trimtab.core import BadInputError, NotFoundError, did_you_mean
from trimtab.schedule.traces import Trace, read_trace, trace_names

_WITH_PARTS = ("goodput/workloads.csv.gz", "gpu-throughput/gavel_traces.csv.gz")
_ALONE = ("goodput/philly_trace.csv.gz", "gpu-cluster/ali_v2023_pods_default.csv.gz")


def find_trace(path: Path, part: str | None) -> tuple[Trace, Path]:
    """The trace in a file, or in a folder of data sets or one of them; and the file it is in."""
    if not path.is_dir():
        return read_trace(path, part), path
    alone = {file.name.removesuffix(".csv.gz"): file for file in _present(path, _ALONE)}
    several = _present(path, _WITH_PARTS)
    if part in alone:
        return read_trace(alone[part]), alone[part]
    if part is None and len(several) == 1 and not alone:
        return read_trace(several[0]), several[0]
    parts = {name: file for file in several for name in trace_names(file)}
    known = [*parts, *alone]
    if not known:
        raise NotFoundError(
            f"{path} holds none of the traces known by name ({', '.join((*_WITH_PARTS, *_ALONE))}); "
            "give the file of one"
        )
    if part is None:
        raise BadInputError(f"{path} holds {len(known)} traces: say which with --part, such as {known[0]}")
    file = parts.get(part) or parts.get(part.replace("/workload-", "-"))
    if file is None:
        hint = did_you_mean(part, known) or f"; there are {', '.join(known[:12])}"
        raise NotFoundError(f'{path}: no trace is called "{part}"{hint}')
    return read_trace(file, part), file


def data_set(name: str, marker: str, data: Path | None, trace: Path) -> Path:
    """The folder of a data set, by a file that is in it: below `data`, else beside the trace."""
    places = [data / name, data] if data is not None else [trace.parent, trace.parent.parent / name]
    found = next((place for place in places if (place / marker).is_file()), None)
    if found is None:
        raise NotFoundError(
            f"how fast these jobs are is measured in the data set {name}, and there is no {marker} in "
            f"{' or '.join(map(str, places))}; --data names the folder that holds {name}"
        )
    return found


def _present(folder: Path, files: Sequence[str]) -> list[Path]:
    """Those of these files that are below a folder, or in it where it is a single data set."""
    places = [(folder / file, folder / Path(file).name) for file in files]
    return [
        next(place for place in pair if place.is_file()) for pair in places if any(p.is_file() for p in pair)
    ]
