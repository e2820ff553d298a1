"""What happens to jobs, told to whoever follows the store's events."""

from trimtab.store import JobRecord, Store


def tell(store: Store, record: JobRecord, now: float) -> None:
    """That a job is in its state now; within the write that put it there, both are kept or none."""
    detail = {"name": record.name, "state": record.state.value, "why": record.run.reason}
    store.events.append(f"job.{record.state.value}", record.id, detail, now, record.tenant)
