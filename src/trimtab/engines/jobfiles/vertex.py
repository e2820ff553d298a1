"""A Vertex AI custom job: `gcloud ai custom-jobs create --config=job.json`."""

import json
from typing import Any

from trimtab.core import BadInputError
from trimtab.engines.jobfiles.google import accelerator_type
from trimtab.engines.jobfiles.job import Job, comment
from trimtab.engines.jobfiles.launcher import Launcher, launcher
from trimtab.engines.jobfiles.machine import default_image, machine_type
from trimtab.engines.jobfiles.script import Rendezvous, node_script

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

_RENDEZVOUS = Rendezvous(rank='"$RANK_OF_NODE"', address='"$FIRST_NODE"', port='"$FIRST_PORT"')


def write(job: Job) -> str:
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
    pools = [_pool(job, 1)] if nodes == 1 else [_pool(job, 1), _pool(job, nodes - 1)]
    spec: dict[str, Any] = {"workerPoolSpecs": pools}
    scheduling = _scheduling(job)
    if scheduling:
        spec["scheduling"] = scheduling
    # gcloud reads the file as YAML, where \\u escapes in pairs would not be one character.
    return json.dumps(spec, indent=2, ensure_ascii=False) + "\n"


def _pool(job: Job, replicas: int) -> dict[str, Any]:
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
    script = header + find_place + node_script(job, _RENDEZVOUS)
    return {
        "machineSpec": machine,
        "replicaCount": replicas,
        "containerSpec": {"imageUri": image, "command": ["bash", "-c"], "args": [script]},
    }


def _scheduling(job: Job) -> dict[str, Any]:
    scheduling: dict[str, Any] = {}
    if job.time_limit is not None:
        scheduling["timeout"] = f"{job.time_limit}s"
    if job.configuration.spot:
        scheduling |= {"strategy": "SPOT", "restartJobOnWorkerRestart": job.configuration.nodes > 1}
    return scheduling
