"""Where a job's files are: its checkpoint, its progress, and the mark that it has saved."""

from dataclasses import dataclass
from pathlib import Path

from trimtab.core import home


@dataclass(frozen=True, slots=True)
class JobFiles:
    """Files of one job under `$TRIMTAB_HOME/jobs/ID`, which every node must see under the same path."""

    folder: Path

    @staticmethod
    def of(id: str) -> "JobFiles":
        """Those of a job."""
        return JobFiles(home().absolute() / "jobs" / id)

    @property
    def checkpoint(self) -> Path:
        """A folder that is the job's own: what it saves is there when it starts again."""
        return self.folder / "checkpoint"

    @property
    def progress(self) -> Path:
        """Where it may write how many units of work it has done, as a number."""
        return self.folder / "progress"

    @property
    def saved(self) -> Path:
        """What it touches when it has saved."""
        return self.folder / "saved"

    def make(self) -> None:
        """Make the folders; for their owner's eyes only."""
        self.checkpoint.mkdir(parents=True, exist_ok=True, mode=0o700)

    def variables(self) -> dict[str, str]:
        """What a job's environment says about them."""
        return {
            "TRIMTAB_CHECKPOINT": str(self.checkpoint),
            "TRIMTAB_PROGRESS": str(self.progress),
            "TRIMTAB_SAVED": str(self.saved),
        }
