"""`trimtab recommend`: which configuration to rent, for which reasons."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trimtab.cli.keeping import Keeping
from trimtab.cli.options import html_option, json_option, local_option, points_option
from trimtab.cli.place import place
from trimtab.cli.recommend_job import check_subject, recommend_job
from trimtab.cli.recommend_output import print_recommendation

if TYPE_CHECKING:
    from trimtab.core import Profile
    from trimtab.recommend import Recommendation, Row

_LIMITS, _SEARCH, _OUTPUT = "Limits", "Where to look", "What to print and write"
_JOB = "A training job of a SPEC"


def recommend(
    context: typer.Context,
    subject: Annotated[
        str | None,
        typer.Argument(
            metavar="PROFILE|SPEC.yaml",
            help="A profile's file, or its id or the start of it; without one, the latest."
            " Or a SPEC of jobs and shapes, with --job.",
            show_default=False,
        ),
    ] = None,
    job: Annotated[
        str | None,
        typer.Option(
            "--job", metavar="NAME", help="The job in SPEC.yaml.", rich_help_panel=_JOB, show_default=False
        ),
    ] = None,
    objective: Annotated[
        str, typer.Option("--objective", help="What makes a configuration better: cost, time or balanced.")
    ] = "balanced",
    deadline: Annotated[
        str | None,
        typer.Option(
            help="The job must end within this: 6h, 1h30m.", rich_help_panel=_LIMITS, show_default=False
        ),
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(
            help="The job must cost at most this: 40, $40.", rich_help_panel=_LIMITS, show_default=False
        ),
    ] = None,
    epochs: Annotated[
        float | None,
        typer.Option(help="Length of the job, if the script does not show it.", rich_help_panel=_LIMITS),
    ] = None,
    steps: Annotated[
        int | None, typer.Option(help="The same, as steps of the profiled run.", rich_help_panel=_LIMITS)
    ] = None,
    samples: Annotated[
        float | None, typer.Option(help="The same, as samples seen in all.", rich_help_panel=_LIMITS)
    ] = None,
    cloud: Annotated[
        list[str] | None,
        typer.Option(help="Only these clouds: aws,gcp (or repeat).", rich_help_panel=_SEARCH),
    ] = None,
    region: Annotated[
        list[str] | None,
        typer.Option(help="Only these regions; * is a wildcard.", rich_help_panel=_SEARCH),
    ] = None,
    accelerator: Annotated[
        list[str] | None, typer.Option(help="Only these accelerators: A100,H100.", rich_help_panel=_SEARCH)
    ] = None,
    spot: Annotated[
        bool, typer.Option("--spot", help="Consider spot machines too.", rich_help_panel=_SEARCH)
    ] = False,
    max_nodes: Annotated[
        int | None,
        typer.Option(
            help="At most this many machines. Unset: 4 if the script ran as several workers, else one device",
            rich_help_panel=_SEARCH,
            show_default=False,
        ),
    ] = None,
    max_devices: Annotated[
        int | None,
        typer.Option(
            help="At most this many accelerators in all.", rich_help_panel=_SEARCH, show_default=False
        ),
    ] = None,
    batch_size: Annotated[
        str | None,
        typer.Option(
            help="Samples per device and step to consider, like 32,64,128; else the profiled one.",
            rich_help_panel=_SEARCH,
            show_default=False,
        ),
    ] = None,
    precision: Annotated[
        str | None,
        typer.Option(
            help="Number format of matrix products: fp32, tf32, bf16, fp16; else the profiled one.",
            rich_help_panel=_SEARCH,
            show_default=False,
        ),
    ] = None,
    interruptions: Annotated[
        float, typer.Option(help="How often a spot machine is lost, per hour.", rich_help_panel=_SEARCH)
    ] = 0.05,
    data: Annotated[Path | None, points_option(_JOB)] = None,
    local: Annotated[Path | None, local_option(_JOB)] = None,
    state: Annotated[
        Path | None,
        typer.Option(
            "--state",
            metavar="FILE",
            help="Trials that `trimtab tune` kept there; else those in Trimtab's home.",
            rich_help_panel=_JOB,
            show_default=False,
        ),
    ] = None,
    engine: Annotated[
        str | None,
        typer.Option(
            "--engine",
            metavar="URL",
            help="Trials that were made there, and only what it has room for.",
            rich_help_panel=_JOB,
            show_default=False,
        ),
    ] = None,
    top: Annotated[int, typer.Option(help="How many rows.", rich_help_panel=_OUTPUT)] = 10,
    explain: Annotated[
        int | None,
        typer.Option("--explain", metavar="N", help="Say why row N is where it is.", rich_help_panel=_OUTPUT),
    ] = None,
    as_json: Annotated[bool, json_option(_OUTPUT)] = False,
    html: Annotated[Path | None, html_option(_OUTPUT)] = None,
    emit: Annotated[
        str | None,
        typer.Option(
            "--emit",
            metavar="TARGET",
            rich_help_panel=_OUTPUT,
            help="Write a job file: skypilot, kubernetes, slurm or vertex.",
        ),
    ] = None,
    row: Annotated[
        int,
        typer.Option(
            "--row", metavar="N", help="The row to emit, and to decide for.", rich_help_panel=_OUTPUT
        ),
    ] = 1,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", metavar="FILE", help="Where the job file goes.", rich_help_panel=_OUTPUT
        ),
    ] = None,
    image: Annotated[
        str | None, typer.Option(help="Container image of the job file.", rich_help_panel=_OUTPUT)
    ] = None,
) -> None:
    """Rank configurations to rent, with time, cost, ranges, reasons, and what each number rests on.

    `trimtab recommend profile.json --objective cost --deadline 6h --spot`
    ranks what clouds sell for a profiled workload. It writes down the decision too; `trimtab decisions` shows
    it, and `trimtab outcome` tells how it went, from which the next recommendation for the workload learns.

    `trimtab recommend examples/jobs/collect.yaml --job news-topics --objective cost`
    ranks a SPEC's shapes, batches and workers for one of its training jobs. It goes by trials that
    `trimtab tune` made (evidence: trial), by what other jobs did (model), and by a short local run (rule),
    which is made if there is none. It makes no trial itself.
    """
    from trimtab.catalog import load_offers
    from trimtab.core import Goal, parse_duration, parse_money
    from trimtab.recommend import (
        LOOK_BACK,
        Assumptions,
        Request,
        decision,
        html_report,
        plain_recommendation,
        recommend as search,
        runs_after,
        work,
    )
    from trimtab.tune import JobSource

    check_subject(context, subject, job)
    if job is not None:
        limits = Goal(
            objective=objective,
            deadline=parse_duration(deadline) if deadline else None,
            budget=parse_money(budget) if budget else None,
            top=top,
        )
        source = JobSource(Path(subject or ""), job, engine, data, local, state)
        recommend_job(source, limits, explain, as_json, html)
        return
    request = Request(
        objective=objective,
        deadline=parse_duration(deadline) if deadline else None,
        budget=parse_money(budget) if budget else None,
        clouds=_listed(cloud),
        regions=_listed(region),
        accelerators=_listed(accelerator),
        spot=spot,
        max_nodes=max_nodes,
        max_devices=max_devices,
        batch_sizes=_batch_sizes(batch_size),
        precision=_precision(precision),
        top=max(top, row, explain or 1),
        assume=Assumptions(interruptions_per_hour=interruptions),
    )
    profile = _profile(subject)
    with place() as at:
        known = at.decisions.page(LOOK_BACK, kind="recommend", subject=profile.workload.name).items
        earlier = runs_after(known, at.decisions.outcomes, profile)
    result = search(profile, load_offers(), request, work(profile, epochs, steps, samples), earlier)
    _row(result, row)
    explained = _row(result, explain) if explain is not None else None
    job_text = _job_file(result, row, emit, image) if emit else ""
    made, ledger = decision(result, chosen=row), Keeping()
    ledger.record(made)
    id = ledger.id_of(made.id)
    page = html_report(result, id) if html else ""
    written = _write(html, page, output, job_text, emit, profile.workload.name)
    if as_json:
        print(json.dumps(plain_recommendation(result, id, top)))
    else:
        print_recommendation(result, id, top, explained, written)
    ledger.require()


def _listed(given: list[str] | None) -> tuple[str, ...]:
    """Names given apart, with commas, or both."""
    return tuple(name.strip() for text in given or () for name in text.split(",") if name.strip())


def _batch_sizes(text: str | None) -> tuple[int, ...]:
    from trimtab.core import BadInputError

    try:
        return tuple(int(part) for part in text.split(",")) if text else ()
    except ValueError:
        raise BadInputError(f'--batch-size is "{text}"; write whole numbers like 32,64,128') from None


def _precision(name: str | None) -> str | None:
    from trimtab.core import BadInputError

    known = ("fp32", "tf32", "bf16", "fp16")
    if name is not None and name not in known:
        raise BadInputError(f'--precision is "{name}"; it should be one of {", ".join(known)}')
    return name


def _profile(name: str | None) -> "Profile":
    from trimtab.observe import load_profile

    if name is not None and (Path(name).exists() or "/" in name or name.endswith(".json")):
        return load_profile(Path(name))
    with place() as at:
        return at.profiles.latest() if name is None else at.profiles.get(name)


def _row(result: "Recommendation", number: int) -> "Row":
    from trimtab.core import BadInputError

    if not 1 <= number <= len(result.rows):
        raise BadInputError(f"there is no row {number}; there are {len(result.rows)}")
    return result.rows[number - 1]


def _job_file(result: "Recommendation", number: int, target: str, image: str | None) -> str:
    from trimtab.engines import job_file

    chosen = _row(result, number)
    return job_file(
        target,
        result.profile.workload,
        chosen.configuration,
        expected_seconds=chosen.time.value,
        max_seconds=2 * chosen.time.high,
        image=image,
    )


def _write(
    html: Path | None, page: str, output: Path | None, job: str, target: str | None, name: str
) -> list[str]:
    """Write what was asked for; what to tell the user about it."""
    from trimtab.kernel import write_whole

    written = []
    if html:
        write_whole(html, page)
        written.append(f"report: {html.resolve()}")
    if target:
        suffix = {"vertex": "json", "slurm": "sh"}.get(target, "yaml")
        safe = "".join(c if c.isalnum() or c in "-_." else "-" for c in name)
        path = output or Path(f"{safe}.{target}.{suffix}")
        write_whole(path, job)
        written.append(f"job file: {path.resolve()}")
    return written
