"""A collection's configurations as job files: for those who would measure them where they are rented."""

import math
from collections.abc import Iterator
from datetime import date

from trimtab.collect import Shape, Spec
from trimtab.core import BadInputError, Configuration, Offer, Workload
from trimtab.engines.jobfiles.registry import job_file

_ENDINGS = {"skypilot": "yaml", "vertex": "json", "kubernetes": "yaml", "slurm": "sh"}


def collection_files(spec: Spec, target: str, image: str | None = None) -> Iterator[tuple[str, str]]:
    """Name and text of a file for every job, shape, batch and number of workers of the spec."""
    offers = {shape.name: _offer(shape, spec.price_date) for shape in spec.shapes}
    for lane in spec.lanes():
        for shape, offer in offers.items():
            name = f"{lane.job.name}-{shape}-b{lane.batch}-w{lane.workers}"
            workload = Workload(name, command=tuple(lane.job.words(lane.batch)))
            configuration = Configuration(offer, lane.workers, lane.batch, spot=False)
            text = job_file(target, workload, configuration, image=image)
            yield f"{name}.{_ENDINGS[target]}", text


def _offer(shape: Shape, price_date: str) -> Offer:
    """The machine that a shape stands for."""
    if shape.instance is None:
        raise BadInputError(
            f"shape {shape.name} names no machine to rent; add one, as in "
            "instance: gcp/us-central1/n1-standard-4"
        )
    cloud, region, instance = shape.instance
    return Offer(
        cloud,
        region,
        instance,
        vcpus=shape.cpus,
        memory=shape.memory,
        accelerator=None,
        accelerators=0,
        price=shape.price_per_hour / 3600.0,
        spot_price=None,
        network=math.nan,
        price_date=date.fromisoformat(price_date),
    )
