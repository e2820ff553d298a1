"""A SkyPilot task: `sky launch job.yaml`."""

from trimtab.core import BadInputError
from trimtab.engines.jobfiles.job import Job, comment
from trimtab.engines.jobfiles.machine import is_tpu_vm, machine_type
from trimtab.engines.jobfiles.script import Rendezvous, node_script
from trimtab.engines.jobfiles.yaml_text import to_yaml

CLOUDS = (
    "aws",
    "azure",
    "cudo",
    "do",
    "fluidstack",
    "gcp",
    "hyperbolic",
    "ibm",
    "lambda",
    "mithril",
    "nebius",
    "oci",
    "paperspace",
    "primeintellect",
    "runpod",
    "scp",
    "seeweb",
    "shadeform",
    "vast",
    "verda",
    "vsphere",
    "yotta",
)
"""Clouds that SkyPilot 0.14 rents from."""

_FIRST_NODE = '"$(head -n1 <<< "$SKYPILOT_NODE_IPS")"'

_SETUP = """\
# The machine comes without your packages; say here how to install them.
if [ -f requirements.txt ]; then pip install -r requirements.txt; else pip install torch; fi
"""


def write(job: Job) -> str:
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
