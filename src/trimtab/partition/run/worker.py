"""A process of a run or a measurement: python -m trimtab.partition.run.worker rank|link FOLDER RANK."""

import signal
import sys
import traceback
from pathlib import Path

from trimtab.kernel import die_with_parent


def main(part: str, folder: Path, rank: int) -> None:
    """Play a part, rank of a run or end of a link; PyTorch loads only here."""
    if part == "rank":
        from trimtab.partition.run.rank_process import run_rank

        run_rank(folder, rank)
    else:
        from trimtab.partition.run.links import run_end

        run_end(folder, rank)


def cause(error: BaseException) -> str:
    """What went wrong first, in one line."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


if __name__ == "__main__":
    die_with_parent(signal.SIGKILL)
    try:
        main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
    except Exception as error:
        traceback.print_exc()
        sys.exit(cause(error))
