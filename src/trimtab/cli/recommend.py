"""`trimtab recommend`: which configuration to rent, and why."""

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from trimtab import recommend as room
from trimtab.cli.options import JOB, OUTPUT, Html, Json, LocalRuns, Points, panel
from trimtab.cli.place import LedgerQueue, place
from trimtab.cli.terminal import file_name, new_table, one_of, print_table, say, write_file
from trimtab.core import (
    BadInputError,
    Goal,
    Profile,
    format_duration,
    format_money,
    format_price,
    parse_duration,
    parse_money,
)
from trimtab.observe import load_profile
from trimtab.recommend import (
    LOOK_BACK,
    Assumptions,
    Recommendation,
    Request,
    Row,
    bound,
    decision,
    evidence,
    explain_row,
    plain_recommendation,
    runs_after,
)
from trimtab.serve import rank_configurations

_limits, _search, _output = panel("Limits"), panel("Where to look"), panel(OUTPUT)
_job = panel(JOB)
_PRECISIONS = ("fp32", "tf32", "bf16", "fp16")


def recommend(
    context: typer.Context,
    subject: Annotated[
        str | None,
        typer.Argument(
            metavar="PROFILE|SPEC.yaml",
            help="A profile's file, or its id or the start of it; without one, the latest."
            " Or a SPEC of jobs and shapes, with --job.",
        ),
    ] = None,
    job: Annotated[str | None, _job(metavar="NAME", help="The job in SPEC.yaml.")] = None,
    objective: Annotated[
        str, typer.Option(help="What makes a configuration better: cost, time or balanced.")
    ] = "balanced",
    deadline: Annotated[str | None, _limits(help="The job must end within this: 6h, 1h30m.")] = None,
    budget: Annotated[str | None, _limits(help="The job must cost at most this: 40, $40.")] = None,
    epochs: Annotated[
        float | None, _limits(help="Length of the job, if the script does not show it.")
    ] = None,
    steps: Annotated[int | None, _limits(help="The same, as steps of the profiled run.")] = None,
    samples: Annotated[float | None, _limits(help="The same, as samples seen in all.")] = None,
    cloud: Annotated[list[str] | None, _search(help="Only these clouds: aws,gcp (or repeat).")] = None,
    region: Annotated[list[str] | None, _search(help="Only these regions; * is a wildcard.")] = None,
    accelerator: Annotated[list[str] | None, _search(help="Only these accelerators: A100,H100.")] = None,
    spot: Annotated[bool, _search("--spot", help="Consider spot machines too.")] = False,
    max_nodes: Annotated[
        int | None,
        _search(
            help="At most this many machines. Unset: 4 if the script ran as several workers, else one device"
        ),
    ] = None,
    max_devices: Annotated[int | None, _search(help="At most this many accelerators in all.")] = None,
    batch_size: Annotated[
        str | None,
        _search(help="Samples per device and step to consider, like 32,64,128; else the profiled one."),
    ] = None,
    precision: Annotated[
        str | None,
        _search(help="Number format of matrix products: fp32, tf32, bf16, fp16; else the profiled one."),
    ] = None,
    interruptions: Annotated[float, _search(help="How often a spot machine is lost, per hour.")] = 0.05,
    data: Points = None,
    local: LocalRuns = None,
    state: Annotated[
        Path | None,
        _job(metavar="FILE", help="Trials that `trimtab tune` kept there; else those in Trimtab's home."),
    ] = None,
    engine: Annotated[
        str | None, _job(metavar="URL", help="Trials that were made there, and only what it has room for.")
    ] = None,
    top: Annotated[int, _output(help="How many rows.")] = 10,
    explain: Annotated[int | None, _output(metavar="N", help="Say why row N is where it is.")] = None,
    as_json: Json = False,
    html: Html = None,
    emit: Annotated[
        str | None, _output(metavar="TARGET", help="Write a job file: skypilot, kubernetes, slurm or vertex.")
    ] = None,
    row: Annotated[int, _output(metavar="N", help="The row to emit, and to decide for.")] = 1,
    output: Annotated[
        Path | None, _output("-o", "--output", metavar="FILE", help="Where the job file goes.")
    ] = None,
    image: Annotated[str | None, _output(help="Container image of the job file.")] = None,
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
    check_subject(context, subject, job)
    latest = parse_duration(deadline) if deadline else None
    dearest = parse_money(budget) if budget else None
    if job is not None:
        from trimtab.cli.tune import recommend_job
        from trimtab.tune import JobSource

        source = JobSource(Path(subject or ""), job, engine, data, local, state)
        recommend_job(source, Goal(objective, latest, dearest, top), explain, as_json, html)
        return
    request = Request(
        objective=objective,
        deadline=latest,
        budget=dearest,
        clouds=_listed(cloud),
        regions=_listed(region),
        accelerators=_listed(accelerator),
        spot=spot,
        max_nodes=max_nodes,
        max_devices=max_devices,
        batch_sizes=_batch_sizes(batch_size),
        precision=one_of("--precision", precision, _PRECISIONS) if precision else None,
        top=max(top, row, explain or 1),
        assume=Assumptions(interruptions_per_hour=interruptions),
    )
    profile = _profile(subject)
    with place() as at:
        known = at.decisions.page(LOOK_BACK, kind="recommend", subject=profile.workload.name).items
        earlier = runs_after(known, at.decisions.outcomes, profile)
    result = rank_configurations(profile, request, epochs, steps, samples, earlier)
    _row(result, row)
    explained = _row(result, explain) if explain is not None else None
    job_text = _job_file(result, row, emit, image) if emit else ""
    made, ledger = decision(result, chosen=row), LedgerQueue()
    ledger.record(made)
    id = ledger.id_of(made.id)
    written = write_file(html, lambda: room.html_report(result, id))
    if emit:
        suffix = {"vertex": "json", "slurm": "sh"}.get(emit, "yaml")
        job_path = output or Path(f"{file_name(profile.workload.name)}.{emit}.{suffix}")
        written += write_file(job_path, lambda: job_text, "job file")
    if as_json:
        print(json.dumps(plain_recommendation(result, id, top)))
    else:
        print_recommendation(result, id, top, explained, written)
    ledger.require()


def _listed(given: list[str] | None) -> tuple[str, ...]:
    """Names given apart, with commas, or both."""
    return tuple(name.strip() for text in given or () for name in text.split(",") if name.strip())


def _batch_sizes(text: str | None) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(",")) if text else ()
    except ValueError:
        raise BadInputError(f'--batch-size is "{text}"; write whole numbers like 32,64,128') from None


def _profile(name: str | None) -> Profile:
    if name is not None and (Path(name).exists() or "/" in name or name.endswith(".json")):
        return load_profile(Path(name))
    with place() as at:
        return at.profiles.latest() if name is None else at.profiles.get(name)


def _row(result: Recommendation, number: int) -> Row:
    if not 1 <= number <= len(result.rows):
        raise BadInputError(f"there is no row {number}; there are {len(result.rows)}")
    return result.rows[number - 1]


def _job_file(result: Recommendation, number: int, target: str, image: str | None) -> str:
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


_OF_JOBS = ("job", "data", "local", "state", "engine")
_OF_BOTH = ("subject", "objective", "deadline", "budget", "top", "explain", "as_json", "html")


def check_subject(context: typer.Context, subject: str | None, job: str | None) -> None:
    """A SPEC goes with --job and a profile without; each has options that say nothing of the other."""
    is_spec = subject is not None and subject.endswith((".yaml", ".yml"))
    if subject is not None and is_spec and job is None:
        from trimtab.collect import read_spec

        names = ", ".join(each.name for each in read_spec(Path(subject)).jobs)
        raise BadInputError(f"{subject} is a SPEC; say with --job which of its jobs is meant: {names}")
    if job is not None and not is_spec:
        which = "no file is named" if subject is None else f"{subject} is not one"
        raise BadInputError(f"--job names a job of a SPEC, a .yaml file with jobs and shapes, and {which}")
    others = set(context.params) - {*_OF_JOBS, *_OF_BOTH} if is_spec else set(_OF_JOBS)
    for option in context.command.params:
        name = option.name or ""
        said = context.get_parameter_source(name)
        if name in others and said is not None and said.name == "COMMANDLINE":
            kind, other = ("a profile", "a SPEC") if is_spec else ("a SPEC", "a profile")
            raise BadInputError(f"{option.opts[-1]} goes with {kind}, and this is about {other}")


def print_recommendation(
    result: Recommendation, decision_id: str, top: int, explained: Row | None, written: list[str]
) -> None:
    """Everything a person wants to know; `written` are lines about files."""
    console = Console(highlight=False)
    table = new_table(">#", "configuration", "<devices", ">time", ">cost", "<limited by", "<evidence")
    for r in result.rows[:top]:
        table.add_row(*_cells(result, r))
    console.print(
        f"[bold]{escape(result.profile.workload.name)}[/bold]: {result.work.source};"
        f" {result.considered:,} configurations by {result.request.objective}"
    )
    print_table(table)
    for dropped in result.dropped:
        console.print(f"[dim]left out {dropped.count:,}: {escape(dropped.reason)}[/dim]")
    for note in result.notes:
        console.print(f"[dim]note: {escape(note)}[/dim]")
    if explained is not None:
        console.print()
        for line in explain_row(result, explained):
            say(line)
    for line in written:
        say(line)
    if decision_id:
        say(f"decision {decision_id}: trimtab decisions {decision_id}")


def _cells(result: Recommendation, r: Row) -> tuple[str, ...]:
    c, time, cost, by = r.configuration, r.time, r.cost, evidence(r)
    batch = f" b{c.batch_size}" if result.request.batch_sizes else ""
    nodes = f" ×{c.nodes}" if c.nodes > 1 else ""
    devices = f"{c.devices}×{c.offer.accelerator}" if c.offer.accelerator else f"{c.offer.vcpus:g} vCPU"
    return (
        str(r.rank),
        f"{c.offer.instance}{nodes}{batch}\n"
        f"[dim]{c.offer.cloud} {c.offer.region}{', spot' if c.spot else ''}[/dim]",
        f"{devices}\n[dim]{format_price(c.price)}[/dim]",
        f"{format_duration(time.value)}\n[dim]{format_duration(time.low)}–{format_duration(time.high)}[/dim]",
        f"{format_money(cost.value)}\n[dim]{format_money(cost.low)}–{format_money(cost.high)}[/dim]",
        bound(r).removesuffix("-bound"),
        f"{by.time}\n[dim]memory: {by.memory}[/dim]",
    )
