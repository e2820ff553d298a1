"""Jobs from the text of a job file."""

from collections.abc import Sequence

from trimtab.schedule import Submission
from trimtab.schedule.job_file import parse_documents, submissions


def parse_jobs(content: str, where: str, settings: Sequence[str] = ()) -> tuple[Submission, ...]:
    """The jobs of a file's content."""
    return submissions(parse_documents(content, where, settings), where)
