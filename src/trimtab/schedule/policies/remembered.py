"""What a policy keeps about jobs from round to round."""

import numpy as np

from trimtab.schedule.cluster import Floats
from trimtab.schedule.jobs import Bools


class Remembered:
    """Columns of numbers whose rows follow the jobs of each round; those of a new job start at zero."""

    def __init__(self, columns: int) -> None:
        self._ids: tuple[str, ...] = ()
        self._values = np.zeros((0, columns))

    def follow(self, ids: tuple[str, ...]) -> tuple[Floats, Bools]:
        """The rows of these jobs, to be changed in place, and which of them are new."""
        new = np.zeros(len(ids), dtype=bool)
        if ids != self._ids:
            index = {job: row for row, job in enumerate(self._ids)}
            before = np.fromiter((index.get(job, -1) for job in ids), dtype=np.int64, count=len(ids))
            new = before < 0
            values = np.zeros((len(ids), self._values.shape[1]))
            values[~new] = self._values[before[~new]]
            self._ids, self._values = ids, values
        return self._values, new
