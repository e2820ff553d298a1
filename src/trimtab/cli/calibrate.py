"""`trimtab calibrate`: fit a device's constants to steps measured on it."""

import json
from math import comb
from pathlib import Path
from typing import Annotated, Any

import typer

from trimtab.catalog import accelerator as find
from trimtab.cli.terminal import progress
from trimtab.core import BadInputError
from trimtab.kernel import write_whole
from trimtab.predict import (
    BUNDLED_STAGES,
    BUNDLED_STEPS,
    calibrate as fit,
    calibration_data,
    corrections_data,
    cpu_calibration_data,
    fit_cpu_constants,
    learn_corrections,
    leave_one_model_out,
    leave_two_models_out,
    read_measurements,
    read_stages,
)

_MEASURED_CORES = 2  # threads of steps measured on a CPU


def calibrate(
    data: Annotated[
        Path | None,
        typer.Argument(help="A folder with steps.csv and ops.csv; without one, the bundled H200 steps."),
    ] = None,
    accelerator: Annotated[str, typer.Option(help="The device they were measured on.")] = "H200",
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="A file of constants to update; else they are printed."),
    ] = None,
) -> None:
    """Fit the cost model's constants to measured steps, as they ship in the catalog's `calibration.json`.

    A `stages.csv` in the folder (timed parts of models) is fitted together with the steps, and steps on a CPU
    (device cpu, two threads) give the constants of a CPU. The stated error comes from leaving each model out
    in turn; `trimtab bench gpu-steps` shows it in full. With three models or more, what corrects the rule
    beside it is learned too: about five minutes for 28.
    """
    target = find(accelerator)
    everything = read_measurements(data or BUNDLED_STEPS)
    rows = [r for r in everything if r.device != "cpu"]
    on_cpu = [r for r in everything if r.device == "cpu"]
    measured = data or BUNDLED_STAGES
    stages = read_stages(measured) if (measured / "stages.csv").is_file() else []
    names = {r.name for r in rows}
    with progress("leaving one model out", len(names), counted=True) as update:
        update()
        left_out = leave_one_model_out(rows, target, stages, lambda part: update(advance=1))
    entry = calibration_data(fit(rows, target, left_out, stages))
    if len(names) > 2:
        with progress("leaving two models out", comb(len(names), 2), counted=True) as update:
            update()
            without = leave_two_models_out(rows, target, stages, lambda part: update(advance=1))
        entry["corrections"] = corrections_data(learn_corrections(rows, target, left_out, without))
    entries = {target.name: entry}
    if on_cpu:
        entries["CPU"] = cpu_calibration_data(fit_cpu_constants(on_cpu, _MEASURED_CORES))
    if output is None:
        print(json.dumps(entries, indent=2))
        return
    write_whole(output, json.dumps({**_read(output), **entries}, indent=2) + "\n")
    print(f"{target.name}: constants from {len(rows)} steps of {len(names)} models written to {output}")


def _read(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    try:
        known = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        known = None
    if not isinstance(known, dict):
        raise BadInputError(f"{path} is not a file of constants; name another one with -o")
    return known
