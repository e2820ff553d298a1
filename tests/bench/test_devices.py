"""The bench of devices: which rows are comparable, and figures under every protocol."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from trimtab_bench import BenchOptions, run_bench
from trimtab_bench.devices import PROTOCOLS, known_facts
from trimtab_bench.devices.networks import TracedNetwork, parse_facts, trace_part
from trimtab_bench.devices.published import read_published

from trimtab.core import BadInputError
from trimtab.predict import TRACED_COLUMNS

ROW = {
    "source": "timm",
    "gpu": "RTX-3090",
    "gpus": "1",
    "arch": "net0",
    "mode": "train",
    "precision": "fp16-amp",
    "batch_per_gpu": "64",
    "input": "224",
    "step_ms": "100",
    "framework": "pytorch-2.4+cu124",
    "engine": "eager",
    "layout": "nchw",
    "build": "timm:net0",
    "note": "",
}


def write(folder: Path, *rows: dict[str, str]) -> Path:
    with (folder / "timm.csv").open("w", newline="") as file:
        table = csv.DictWriter(file, list(ROW))
        table.writeheader()
        table.writerows({**ROW, **row} for row in rows)
    return folder


def test_rows_that_cannot_be_compared_are_counted_by_reason(tmp_path: Path) -> None:
    data = write(
        tmp_path,
        {},
        {"engine": "inductor"},
        {"gpus": "8"},
        {"build": ""},
        {"gpu": "Abacus"},
        {"precision": "fp64"},
    )
    steps, reasons = read_published(data)
    assert [(s.device.name, s.batch, s.number_format, s.version) for s in steps] == [
        ("RTX-3090", 64.0, "cast", 2.04)
    ]
    assert sum(reasons.values()) == 5
    assert any("Abacus" in reason for reason in reasons)


def test_a_value_that_is_no_measurement_is_named_with_its_place(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match=r"timm\.csv, line 3.*-5"):
        read_published(write(tmp_path, {}, {"step_ms": "-5"}))


def test_a_folder_without_measurements_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match=str(tmp_path)):
        read_published(tmp_path)


def test_the_folder_has_to_be_named() -> None:
    with pytest.raises(BadInputError, match="--data"):
        run_bench("devices", BenchOptions(quiet=True))


def facts_of(network: int) -> dict[str, object]:
    """Totals of a made-up network: convolutions of a size of their own."""
    fixed, sample = np.zeros(len(TRACED_COLUMNS)), np.zeros(len(TRACED_COLUMNS))
    for phase, times in (("forward", 1.0), ("backward", 2.0)):
        for name, value in (("flop", 2e9), ("results", 1e7), ("operands", 1e7), ("rows", 1e5)):
            sample[TRACED_COLUMNS.index(f"{phase}_winograd_{name}")] = times * value * (1 + network)
        sample[TRACED_COLUMNS.index(f"{phase}_conv_bytes")] = times * 4e7
        fixed[TRACED_COLUMNS.index(f"{phase}_conv_calls")] = 50
    data = {"fixed": fixed.tolist(), "sample": sample.tolist()}
    return {"parameters": 1e7, "tensors": 100, "train": data, "infer": data}


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Rows of six networks on five devices, whose facts are kept already."""
    monkeypatch.setenv("TRIMTAB_HOME", str(tmp_path / "home"))
    rows = []
    for network in range(6):
        part = trace_part(TracedNetwork(f"timm:net{network}", 224))
        known_facts().save(part.file, json.dumps(facts_of(network)).encode())
        for gpu, speed in (("RTX-3090", 1.0), ("V100", 0.8), ("T4", 0.4), ("A100", 2.0), ("H100", 4.0)):
            for batch in (8, 64):
                for mode, passes in (("train", 3), ("infer", 1)):
                    rows.append(
                        {
                            "gpu": gpu,
                            "arch": f"net{network}",
                            "build": f"timm:net{network}",
                            "mode": mode,
                            "batch_per_gpu": str(batch),
                            "step_ms": str(passes * batch * (1 + network) * 0.1 / speed),
                        }
                    )
    folder = tmp_path / "tables"
    folder.mkdir()
    return write(folder, *rows)


@pytest.mark.second_tier
def test_every_protocol_scores_the_rows_that_it_holds_out(data: Path) -> None:
    figures = run_bench("devices", BenchOptions(data=data, quiet=True)).figures
    for mode in ("train", "infer"):
        for protocol in PROTOCOLS:
            scores = figures[mode][protocol]
            assert scores["rows"] > 0
            assert 0 <= scores["median_ape"] < 2
            assert 0 <= scores["coverage90"] <= 1
        assert figures[mode]["device_unseen"]["rows"] == 60
    assert set(figures["devices"]) == {"RTX-3090", "V100", "T4", "A100", "H100"}


def test_shipped_constants_are_scored_alone(data: Path) -> None:
    result = run_bench("devices", BenchOptions(data=data, shipped=True, quiet=True))
    assert list(result.figures["train"]) == ["shipped"]
    assert result.figures["train"]["shipped"]["rows"] == 60


def test_networks_that_are_not_kept_need_the_libraries(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trimtab_bench.devices.networks.find_spec", lambda name: None)
    with pytest.raises(BadInputError, match="pip install"):
        run_bench(
            "devices", BenchOptions(data=write(data, {"build": "timm:unknown"}), shipped=True, quiet=True)
        )


def test_a_network_is_built_without_weights_and_traced_as_a_profile_is() -> None:
    pytest.importorskip("transformers")
    facts = parse_facts(trace_part(TracedNetwork("transformers:gpt2", 64)).run())
    assert facts is not None
    assert facts.train.parameters == pytest.approx(124e6, rel=0.02)
    products = TRACED_COLUMNS.index("forward_matmul_flop")
    # Two operations for every weight of a product and token; embeddings of positions do no arithmetic.
    assert facts.infer.sample[products] == pytest.approx(2 * 64 * 123.5e6, rel=0.02)
    assert facts.train.sample[products] == pytest.approx(facts.infer.sample[products], rel=0.02)


def test_a_network_that_nobody_knows_has_no_facts() -> None:
    assert parse_facts(trace_part(TracedNetwork("transformers:unheard-of", 64)).run()) is None
