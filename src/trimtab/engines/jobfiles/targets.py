"""Job files for Slurm, SkyPilot, Vertex AI and Kubernetes. A target is a function and a line in `TARGETS`."""

import json
import math
from collections.abc import Callable, Iterator, Mapping
from datetime import date
from typing import Any

from trimtab.collect import Shape, Spec
from trimtab.core import BadInputError, Configuration, NotFoundError, Offer, Workload
from trimtab.engines.jobfiles.job import (
    JobFile,
    accelerator_type,
    comment,
    default_image,
    is_tpu_vm,
    machine_type,
    requestable_cpus,
    requestable_memory,
    to_yaml,
)
from trimtab.engines.jobfiles.kubernetes import kubernetes_file
from trimtab.engines.jobfiles.script import Launcher, Rendezvous, launcher, node_script

_SLURM_RENDEZVOUS = Rendezvous(rank='"$SLURM_NODEID"', address='"$FIRST_NODE"')

_FIND_FIRST_NODE = 'export FIRST_NODE="$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n1)"\n'

_SRUN = 'exec srun --kill-on-bad-exit=1 --cpus-per-task="$SLURM_CPUS_PER_TASK" bash -c on_each_node\n'


def slurm_file(job: JobFile) -> str:
    """The script; on several nodes its body becomes a function that srun calls once on each."""
    notes = [
        "The code must lie in the folder sbatch is called from, on a file system all nodes share.",
        "A cluster that counts cores, not hardware threads, offers half of --cpus-per-task.",
    ]
    configuration, offer = job.configuration, job.configuration.offer
    options = [
        f"job-name={job.name}",
        f"nodes={configuration.nodes}",
        "ntasks-per-node=1",
        f"cpus-per-task={max(1, math.floor(requestable_cpus(offer)))}",
        f"mem={requestable_memory(offer) // 2**20}M",
    ]
    if offer.accelerators and not is_tpu_vm(offer):
        # Type names in gres are each site's own; a wrong one is refused, none is always right.
        options.append(f"gres=gpu:{offer.accelerators}")
    if job.time_limit is not None:
        hours, rest = divmod(job.time_limit, 3600)
        options.append(f"time={hours // 24}-{hours % 24:02d}:{rest // 60:02d}:{rest % 60:02d}")
    options.append("requeue" if configuration.spot else "no-requeue")
    body = node_script(job, _SLURM_RENDEZVOUS)
    if configuration.nodes > 1:
        if launcher(job.workload.command, configuration.devices) is not Launcher.FIRST_NODE:
            indented = "".join(f"    {line}\n" for line in body.splitlines())
            body = f"on_each_node() {{\n{indented}}}\nexport -f on_each_node\n{_SRUN}"
        body = _FIND_FIRST_NODE + body
    directives = "".join(f"#SBATCH --{option}\n" for option in options)
    return f"#!/bin/bash\n{comment(job.header('sbatch job.sh', notes))}{directives}\n{body}"


_CLOUDS = (
    "aws azure cudo do fluidstack gcp hyperbolic ibm lambda mithril nebius oci paperspace primeintellect "
    "runpod scp seeweb shadeform vast verda vsphere yotta"
)
CLOUDS = tuple(_CLOUDS.split())
"""Clouds that SkyPilot 0.14 rents from."""

_FIRST_NODE = '"$(head -n1 <<< "$SKYPILOT_NODE_IPS")"'

_SETUP = """\
# The machine comes without your packages; say here how to install them.
if [ -f requirements.txt ]; then pip install -r requirements.txt; else pip install torch; fi
"""


def skypilot_file(job: JobFile) -> str:
    """The task as YAML; the folder it is launched from is copied to every node."""
    configuration, offer = job.configuration, job.configuration.offer
    if offer.cloud not in CLOUDS:
        raise BadInputError(f'SkyPilot does not rent from "{offer.cloud}"; it knows {", ".join(CLOUDS)}')
    resources: dict[str, object] = {"infra": "/".join(filter(None, (offer.cloud, offer.region)))}
    if is_tpu_vm(offer):
        # SkyPilot knows a slice as one accelerator that brings its machine along.
        resources["accelerators"] = f"{offer.instance}:1"
    else:
        resources["instance_type"] = machine_type(offer)
        if offer.accelerators:
            resources["accelerators"] = f"{offer.accelerator}:{offer.accelerators}"
    resources["use_spot"] = configuration.spot
    rendezvous = Rendezvous(
        rank='"$SKYPILOT_NODE_RANK"',
        address=_FIRST_NODE,
        workers='"$SKYPILOT_NUM_GPUS_PER_NODE"' if offer.accelerators and not is_tpu_vm(offer) else None,
    )
    # SkyPilot has no time limit of its own.
    prefix = f"exec timeout --kill-after=60 {job.time_limit}" if job.time_limit else "exec"
    task = {
        "name": job.name,
        "workdir": ".",
        "num_nodes": configuration.nodes,
        "resources": resources,
        "setup": _SETUP,
        "run": node_script(job, rendezvous, prefix),
    }
    notes = ["Add --down to give the machines back when the job ends."]
    if configuration.spot:
        notes.append("sky jobs launch job.yaml instead starts it again when a spot machine is taken away.")
    return comment(job.header("sky launch job.yaml", notes)) + to_yaml(task)


_FIND_PLACE = """\
# Vertex AI tells a node its place as JSON.
eval "$(python3 -c '
import json, os
spec = json.loads(os.environ["CLUSTER_SPEC"])
host, port = spec["cluster"]["workerpool0"][0].rsplit(":", 1)
rank = 0 if spec["task"]["type"] == "workerpool0" else 1 + int(spec["task"]["index"])
print(f"FIRST_NODE={host} FIRST_PORT={port} RANK_OF_NODE={rank}")
')"
"""

_VERTEX_RENDEZVOUS = Rendezvous(rank='"$RANK_OF_NODE"', address='"$FIRST_NODE"', port='"$FIRST_PORT"')


def vertex_file(job: JobFile) -> str:
    """The CustomJobSpec as JSON, which has no comments: the header is the start of the script."""
    configuration, offer = job.configuration, job.configuration.offer
    if offer.cloud != "gcp":
        raise BadInputError(
            f'Vertex AI runs on Google Cloud (gcp), not on "{offer.cloud}"; choose another target'
        )
    nodes = configuration.nodes
    if nodes > 1 and launcher(job.workload.command, configuration.devices) is Launcher.FIRST_NODE:
        raise BadInputError(
            f"{job.workload.command[0]} reaches other nodes over ssh, which Vertex AI does not offer; "
            "use torchrun, or the slurm or skypilot target"
        )
    pools = [_vertex_pool(job, 1)] if nodes == 1 else [_vertex_pool(job, 1), _vertex_pool(job, nodes - 1)]
    spec: dict[str, Any] = {"workerPoolSpecs": pools}
    if job.time_limit is not None:
        spec["scheduling"] = {"timeout": f"{job.time_limit}s"}
    if configuration.spot:
        spec.setdefault("scheduling", {}).update(strategy="SPOT", restartJobOnWorkerRestart=nodes > 1)
    # gcloud reads the file as YAML, where \\u escapes in pairs would not be one character.
    return json.dumps(spec, indent=2, ensure_ascii=False) + "\n"


def _vertex_pool(job: JobFile, replicas: int) -> dict[str, Any]:
    offer = job.configuration.offer
    machine: dict[str, Any] = {"machineType": machine_type(offer)}
    if offer.accelerators:
        machine |= {"acceleratorType": accelerator_type(offer), "acceleratorCount": offer.accelerators}
    image = job.image or default_image(offer)
    launch = (
        f"gcloud ai custom-jobs create --region={offer.region} --display-name={job.name} --config=job.json"
    )
    header = comment(job.header(launch, [f"The image {image} must hold the code, in its working directory."]))
    find_place = _FIND_PLACE if job.configuration.nodes > 1 else ""
    script = header + find_place + node_script(job, _VERTEX_RENDEZVOUS)
    return {
        "machineSpec": machine,
        "replicaCount": replicas,
        "containerSpec": {"imageUri": image, "command": ["bash", "-c"], "args": [script]},
    }


TARGETS: Mapping[str, Callable[[JobFile], str]] = {
    "kubernetes": kubernetes_file,
    "skypilot": skypilot_file,
    "slurm": slurm_file,
    "vertex": vertex_file,
}


def targets() -> tuple[str, ...]:
    """The names `job_file` takes."""
    return tuple(TARGETS)


def job_file(
    target: str,
    workload: Workload,
    configuration: Configuration,
    *,
    expected_seconds: float | None = None,
    max_seconds: float | None = None,
    image: str | None = None,
    profiled_batch: int | None = None,
) -> str:
    """The text of a file that starts `workload` on `configuration` with `target`'s own tool.

    `expected_seconds` is the predicted run time; it sets the time limit unless `max_seconds` does. `image` is
    the container image for targets that need one; None takes a public PyTorch image. `profiled_batch` is the
    batch size that the command has without an option.
    """
    if target not in TARGETS:
        raise NotFoundError(f'there are no job files for "{target}"; choose one of {", ".join(TARGETS)}')
    job = JobFile(workload, configuration, expected_seconds, max_seconds, image, profiled_batch)
    return TARGETS[target](job)


_ENDINGS = {"skypilot": "yaml", "vertex": "json", "kubernetes": "yaml", "slurm": "sh"}


def collection_files(spec: Spec, target: str, image: str | None = None) -> Iterator[tuple[str, str]]:
    """Name and text of a file for every job, shape, batch and number of workers of the spec."""
    offers = {shape.name: _offer(shape, spec.price_date) for shape in spec.shapes}
    for gang in spec.gangs():
        for shape, offer in offers.items():
            name = f"{gang.job.name}-{shape}-b{gang.batch}-w{gang.workers}"
            workload = Workload(name, command=tuple(gang.job.words(gang.batch)))
            configuration = Configuration(offer, gang.workers, gang.batch, spot=False)
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
