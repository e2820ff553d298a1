"""Steps per second as Gavel measured them."""

import gzip
from pathlib import Path

import pytest

from trimtab.core import BadInputError, NotFoundError
from trimtab.schedule import Cluster, Group, Shape
from trimtab.schedule.simulation.tabular import rates, read_throughputs

HEADER = "source,accelerator,model,batch_size,num_gpus,other_model,consolidated,steps_per_s\n"
CLUSTER = Cluster(
    (Group("v100", "v100", 4, 8, 8.0, 1.0), Group("k80", "k80", 4, 8, 8.0, 1.0)),
    (Shape(0, 1), Shape(0, 16), Shape(1, 1)),
)


def _write(folder: Path, text: str) -> Path:
    with gzip.open(folder / "gavel_throughputs.csv.gz", "wt") as file:
        file.write(text)
    return folder


def test_only_jobs_alone_on_a_server_count(tmp_path: Path) -> None:
    table = _write(
        tmp_path,
        HEADER
        + "simulation,v100,net,16,1,,True,4.0\n"
        + "simulation,k80,net,16,1,,True,0.0\n"
        + "simulation,k80,other,,1,,True,0.5\n"
        + "simulation,v100,net,16,1,other,True,1.0\n"
        + "simulation,v100,net,16,2,,False,3.0\n"
        + "physical,v100,net,32,1,,True,9.0\n"
        + "simulation,v100,net,16,8,,True,2.0\n",
    )
    found = read_throughputs(table)
    assert found == {
        (("net", 16.0, 1), "v100"): 4.0,
        (("other", None, 1), "k80"): 0.5,
        (("net", 16.0, 8), "v100"): 2.0,
    }


def test_a_class_runs_in_shapes_of_its_size_where_it_was_measured() -> None:
    measured = {(("net", 16.0, 1), "v100"): 4.0, (("net", 16.0, 8), "v100"): 2.0}
    small, large = ("net", 16.0, 1), ("net", 16.0, 16)
    found = rates(measured, [small, large], CLUSTER)
    assert found[small].tolist() == [4.0, 0.0, 0.0]
    assert found[large].tolist() == [0.0, 2.0, 0.0]


def test_a_missing_or_broken_table_is_told(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="--data names"):
        read_throughputs(tmp_path)
    with pytest.raises(BadInputError, match="cannot be read"):
        read_throughputs(_write(tmp_path, HEADER + "simulation,v100,net,16,1,,True,fast\n"))
    with pytest.raises(BadInputError, match="cannot be read"):
        read_throughputs(_write(tmp_path, "a,b\n1,2\n"))


def test_the_data_set_has_all_models_on_three_accelerators(shared_data: Path) -> None:
    found = read_throughputs(shared_data / "gpu-throughput")
    assert {kind for _, kind in found} == {"v100", "p100", "k80"}
    assert all(rate > 0 for rate in found.values())
