"""`trimtab calibrate`: fit a device's constants to steps measured on it."""

import json
from math import comb
from pathlib import Path

import typer

from trimtab import predict
from trimtab.catalog import accelerator as find_accelerator
from trimtab.cli.terminal import check_files, progress
from trimtab.core import BadInputError
from trimtab.kernel import write_whole

_MEASURED_CORES = 2  # threads of steps measured on a CPU


def calibrate(
    data: Path | None = typer.Argument(
        None, help="A folder with steps.csv and ops.csv; default: the bundled H200 steps."
    ),
    accelerator: str = typer.Option("H200", metavar="NAME", help="The device they were measured on."),
    output: Path | None = typer.Option(
        None, "-o", "--output", help="A file of constants to update; default: print them."
    ),
) -> None:
    """Fit the cost model's constants to measured steps, as they ship in the catalog's `calibration.json`.

    A `stages.csv` in the folder (timed parts of models) is fitted together with the steps, and steps on a CPU
    (device cpu, two threads) give the constants of a CPU. The stated error is leave-one-model-out;
    `trimtab bench gpu-steps` shows it in full. With three models or more, the model that corrects the rule is
    fitted too (leave-two-models-out): about five minutes for 28.
    """
    check_files(output)
    target = find_accelerator(accelerator)
    measured = predict.read_measurements(data or predict.BUNDLED_STEPS)
    rows = [row for row in measured if row.device != "cpu"]
    on_cpu = [row for row in measured if row.device == "cpu"]
    folder = data or predict.BUNDLED_STAGES
    stages = predict.read_stages(folder) if (folder / "stages.csv").is_file() else []
    names = {row.name for row in rows}
    with progress("leaving one model out", len(names), counted=True) as update:
        update()
        left_out = predict.leave_one_model_out(rows, target, stages, lambda part: update(advance=1))
    entry = predict.calibration_data(predict.calibrate(rows, target, left_out, stages))
    if len(names) > 2:
        with progress("leaving two models out", comb(len(names), 2), counted=True) as update:
            update()
            without = predict.leave_two_models_out(rows, target, stages, lambda part: update(advance=1))
        entry["corrections"] = predict.corrections_data(
            predict.learn_corrections(rows, target, left_out, without)
        )
    entries = {target.name: entry}
    if on_cpu:
        entries["CPU"] = predict.cpu_calibration_data(predict.fit_cpu_constants(on_cpu, _MEASURED_CORES))
    if output is None:
        print(json.dumps(entries, indent=2))
        return
    try:
        constants = json.loads(output.read_text("utf-8")) if output.exists() else {}
    except (OSError, ValueError):
        constants = None
    if not isinstance(constants, dict):
        raise BadInputError(f"{output} is not a file of constants; name another one with -o")
    write_whole(output, json.dumps({**constants, **entries}, indent=2) + "\n")
    print(f"{target.name}: constants from {len(rows)} steps of {len(names)} models written to {output}")
