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
    BUNDLED_STEPS,
    calibration_data,
    calibration_from,
    corrections_data,
    estimates_without_pairs,
    learn_corrections,
    leave_one_model_out,
    read_measurements,
)


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
    """Fit the estimator's constants to measured steps, as they ship in the catalog's `calibration.json`.

    The stated error comes from leaving each model out in turn; `trimtab bench gpu-steps` shows it in full.
    With three models or more, what corrects the rule beside it is learned too: two to three minutes for 28.
    """
    target = find(accelerator)
    rows = [r for r in read_measurements(data or BUNDLED_STEPS) if r.device != "cpu"]
    names = {r.name for r in rows}
    with progress("leaving one model out", len(names), counted=True) as update:
        update()
        left_out = leave_one_model_out(rows, target, lambda part: update(advance=1))
    entry = calibration_data(calibration_from(rows, target, left_out))
    if len(names) > 2:
        with progress("leaving two models out", comb(len(names), 2), counted=True) as update:
            update()
            without = estimates_without_pairs(rows, target, lambda part: update(advance=1))
        entry["corrections"] = corrections_data(learn_corrections(rows, target, left_out, without))
    if output is None:
        print(json.dumps({target.name: entry}, indent=2))
        return
    known = _read(output)
    write_whole(output, json.dumps({**known, target.name: entry}, indent=2) + "\n")
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
