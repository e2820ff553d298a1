"""`trimtab recommend`: rank configurations to rent."""

import json
from pathlib import Path

import typer
from rich.console import Console
from rich.markup import escape

from trimtab import recommend as room
from trimtab.catalog import architecture
from trimtab.cli.place import LedgerQueue, place
from trimtab.cli.terminal import (
    JOB,
    OUTPUT,
    Html,
    Json,
    LocalRuns,
    Points,
    check_files,
    file_name,
    one_of,
    panel,
    print_rows,
    say,
    write_file,
)
from trimtab.core import (
    OBJECTIVES,
    BadInputError,
    Goal,
    Profile,
    format_duration,
    format_energy,
    format_money,
    format_price,
    parse_duration,
    parse_money,
)
from trimtab.observe import load_profile
from trimtab.serve import recommend_configuration

_limits, _search, _output = panel("Limits"), panel("Where to look"), panel(OUTPUT)
_job = panel(JOB)
_PRECISIONS = ("fp32", "tf32", "bf16", "fp16")


def recommend(
    context: typer.Context,
    subject: str | None = typer.Argument(
        None,
        metavar="PROFILE|SPEC.yaml",
        help="A profile's file, or its id or the start of it; without one, the latest."
        " Or a SPEC of jobs and shapes, with --job.",
    ),
    job: str | None = _job(None, metavar="NAME", help="The job in SPEC.yaml."),
    objective: str = typer.Option(
        "balanced", metavar="NAME", help=f"What makes a configuration better: {', '.join(OBJECTIVES)}."
    ),
    deadline: str | None = _limits(None, metavar="DURATION", help="The job must end within this: 6h, 1h30m."),
    budget: str | None = _limits(None, metavar="DOLLARS", help="The job must cost at most this: 40, $40."),
    epochs: float | None = _limits(
        None, help="Length of the job in epochs; default: from the script's arguments."
    ),
    steps: int | None = _limits(None, help="Length of the job in steps of the profiled batch size."),
    samples: float | None = _limits(None, help="Length of the job in samples, over all epochs."),
    cloud: list[str] | None = _search(None, metavar="NAME", help="Only these clouds: aws,gcp (or repeat)."),
    region: list[str] | None = _search(None, metavar="NAME", help="Only these regions; * is a wildcard."),
    accelerator: list[str] | None = _search(None, metavar="NAME", help="Only these accelerators: A100,H100."),
    arch: str | None = _search(
        None,
        metavar="NAME",
        help="Architecture of the machines' CPUs: x86_64, arm64; default: x86_64, as most images are.",
    ),
    spot: bool = _search(False, "--spot", help="Consider spot machines too."),
    max_nodes: int | None = _search(
        None,
        help="At most this many machines; default: 4 if the script ran as several workers, else 1.",
    ),
    max_devices: int | None = _search(None, help="At most this many accelerators over all machines."),
    parallel: str | None = _search(
        None,
        metavar="WAYS",
        help="Ways to spread the model over devices: data,zero,fsdp,tensor,pipeline;"
        " default: all, where no single device holds it.",
    ),
    save_memory: str = _search(
        "checkpointing",
        metavar="WAYS",
        help="Ways to save memory that may be used: checkpointing,8bit,lora (optimizer, adapters); or none.",
    ),
    batch_size: str | None = _search(
        None,
        metavar="SIZES",
        help="Batch sizes to consider, in samples per device and step: 32,64,128; default: the profiled one.",
    ),
    precision: str | None = _search(
        None,
        metavar="FORMAT",
        help="Number format of matrix products: fp32, tf32, bf16, fp16; default: the profiled one.",
    ),
    interruptions: float = _search(0.05, help="How often a spot machine is lost, per hour."),
    data: Points = None,
    local: LocalRuns = None,
    state: Path | None = _job(
        None,
        metavar="FILE",
        help="A file of trials of `trimtab tune --state FILE`; default: those in Trimtab's home.",
    ),
    engine: str | None = _job(
        None, metavar="URL", help="Use trials made on this engine, and rank only what its nodes can hold."
    ),
    top: int = _output(10, help="Number of rows to print."),
    explain: int | None = _output(
        None, metavar="N", help="Explain the rank of row N, with the same options as for the table."
    ),
    as_json: Json = False,
    html: Html = None,
    emit: str | None = _output(
        None, metavar="TARGET", help="Write a job file: skypilot, kubernetes, slurm or vertex."
    ),
    row: int = _output(1, metavar="N", help="The row to emit and to record as the decision."),
    output: Path | None = _output(None, "-o", "--output", metavar="FILE", help="The job file to write."),
    image: str | None = _output(None, metavar="IMAGE", help="Container image of the job file."),
) -> None:
    """Rank configurations to rent, with time, cost, ranges, reasons and evidence.

    `trimtab recommend profile.json --objective cost --deadline 6h --spot`
    ranks the offers of clouds for a profiled workload. The decision is recorded: `trimtab decisions` shows
    it, and `trimtab outcome` adds its result, from which the next recommendation for the workload learns.

    `trimtab recommend examples/jobs/collect.yaml --job news-topics --objective cost`
    ranks a SPEC's shapes, batches and workers for one of its training jobs. Evidence are trials of
    `trimtab tune` (trial), other jobs' measurements (model), and a short local run (rule), which is made if
    there is none. It makes no trial itself.
    """
    check_subject(context, subject, job)
    check_files(html, output)
    latest = parse_duration(deadline) if deadline else None
    dearest = parse_money(budget) if budget else None
    if job is not None:
        from trimtab.cli.tune import recommend_job
        from trimtab.tune import JobSource

        source = JobSource(Path(subject or ""), job, engine, data, local, state)
        recommend_job(source, Goal(objective, latest, dearest, top), explain, as_json, html)
        return
    request = room.Request(
        objective=objective,
        deadline=latest,
        budget=dearest,
        clouds=_names(cloud),
        regions=_names(region),
        accelerators=_names(accelerator),
        architecture=arch,
        spot=spot,
        max_nodes=max_nodes,
        max_devices=max_devices,
        parallel=_names([parallel] if parallel else None),
        save_memory=() if save_memory == "none" else _names([save_memory]),
        batch_sizes=_batch_sizes(batch_size),
        precision=one_of("--precision", precision, _PRECISIONS) if precision else None,
        top=max(top, row, explain or 1),
        assume=room.Assumptions(interruptions_per_hour=interruptions),
    )
    profile = _profile(subject)
    with place() as at:
        recommendation = recommend_configuration(
            at, profile, request, epochs, steps, samples, row, reuse=True
        )
    result, id, ledger = recommendation.result, recommendation.decision.id, LedgerQueue()
    explained = _row(result, explain) if explain is not None else None
    job_text = _job_file(result, row, emit, image) if emit else ""
    if not recommendation.recorded:
        ledger.record(recommendation.decision)
        id = ledger.id_of(id)
    written = write_file(html, lambda: room.html_report(result, id))
    if emit:
        suffix = {"vertex": "json", "slurm": "sh"}.get(emit, "yaml")
        job_path = output or Path(f"{file_name(profile.workload.name)}.{emit}.{suffix}")
        written += write_file(job_path, lambda: job_text, "job file")
    if as_json:
        print(json.dumps(room.plain_recommendation(result, id, top)))
    else:
        print_recommendation(result, id, top, explained, written)
    ledger.require()


def _names(texts: list[str] | None) -> tuple[str, ...]:
    """Names in repeated options, separated by commas, or both."""
    return tuple(name.strip() for text in texts or () for name in text.split(",") if name.strip())


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


def _row(result: room.Recommendation, number: int) -> room.Row:
    if not 1 <= number <= len(result.rows):
        raise BadInputError(f"there is no row {number}; the rows are 1 to {len(result.rows)}")
    return result.rows[number - 1]


def _job_file(result: room.Recommendation, number: int, target: str, image: str | None) -> str:
    from trimtab.engines import job_file

    chosen, steps = _row(result, number), result.profile.steps
    cloud = chosen.configuration.offer.cloud
    if target == "vertex" and cloud != "gcp":
        raise BadInputError(
            f"row {number} is on {cloud}, and Vertex AI runs on Google Cloud; add --cloud gcp"
        )
    return job_file(
        target,
        result.profile.workload,
        chosen.configuration,
        expected_seconds=chosen.time.value,
        max_seconds=2 * chosen.time.high,
        image=image,
        profiled_batch=steps.batch_size if steps else None,
    )


_OF_JOBS = ("job", "data", "local", "state", "engine")
_OF_BOTH = ("subject", "objective", "deadline", "budget", "top", "explain", "as_json", "html")


def check_subject(context: typer.Context, subject: str | None, job: str | None) -> None:
    """Refuse options of SPECs with a profile, and the other way round; a SPEC needs --job."""
    is_spec = subject is not None and subject.endswith((".yaml", ".yml"))
    if subject is not None and is_spec and job is None:
        from trimtab.collect import read_spec

        names = ", ".join(entry.name for entry in read_spec(Path(subject)).jobs)
        raise BadInputError(f"{subject} is a SPEC; name one of its jobs with --job: {names}")
    if job is not None and not is_spec:
        problem = "no file is given" if subject is None else f"{subject} is not one"
        raise BadInputError(f"--job needs a SPEC, a .yaml file with jobs and shapes; {problem}")
    others = set(context.params) - {*_OF_JOBS, *_OF_BOTH} if is_spec else set(_OF_JOBS)
    for option in context.command.params:
        name = option.name or ""
        source = context.get_parameter_source(name)
        if name in others and source is not None and source.name == "COMMANDLINE":
            kind, other = ("a profile", "a SPEC") if is_spec else ("a SPEC", "a profile")
            raise BadInputError(f"{option.opts[-1]} is for {kind}; leave it out with {other}")


def print_recommendation(
    result: room.Recommendation, decision_id: str, top: int, explained: room.Row | None, written: list[str]
) -> None:
    """Print the ranking, what was left out, and the explanation of a row; `written` are lines about files."""
    console = Console(highlight=False)
    console.print(
        f"[bold]{escape(result.profile.workload.name)}[/bold]: {result.work.source};"
        f" {result.considered:,} configurations by {result.request.objective}"
    )
    heads = (">#", "configuration", "devices", ">time", ">cost", ">energy", "limited by", "evidence")
    optional = [">energy", "evidence", "limited by"]
    if result.request.objective == "energy":
        optional = ["evidence", "limited by", ">cost"]
    rows = result.rows[:top]
    spread = [row.configuration.parallel.name for row in rows]
    print_rows(heads, [_cells(result, row) for row in rows], optional, spread if any(spread) else ())
    dearer = [f"{row.dearer} dearer than row {row.rank}" for row in result.rows[:top] if row.dearer]
    if dearer:
        same = "with the same accelerators, in the same time"
        console.print(f"[dim]also: {', '.join(dearer)} {same}[/dim]")
    for dropped in result.dropped:
        console.print(f"[dim]left out {dropped.count:,}: {escape(dropped.reason)}[/dim]")
    for note in result.notes:
        console.print(f"[dim]note: {escape(note)}[/dim]")
    if explained is not None:
        console.print()
        for line in room.explain_row(result, explained):
            say(line)
    for line in written:
        say(line)
    if decision_id:
        say(f"decision {decision_id}: trimtab decisions {decision_id}")


def _cells(result: room.Recommendation, row: room.Row) -> tuple[str, ...]:
    choice, time, cost, by = row.configuration, row.time, row.cost, room.evidence(row)
    offer = choice.offer
    batch = f" b{choice.batch_size}" if result.request.batch_sizes else ""
    nodes = f" ×{choice.nodes}" if choice.nodes > 1 else ""
    devices = f"{choice.devices}×{offer.accelerator}" if offer.accelerator else f"{offer.vcpus:g} vCPU"
    marks = (architecture(offer.cloud, offer.instance).replace("x86_64", ""), "spot" if choice.spot else "")
    where = ", ".join([f"{offer.cloud} {offer.region}", *filter(None, marks)])
    return (
        str(row.rank),
        f"{offer.instance}{nodes}{batch}\n{where}",
        f"{devices}\n{format_price(choice.price)}",
        f"{format_duration(time.value)}\n{format_duration(time.low)}–{format_duration(time.high)}",
        f"{format_money(cost.value)}\n{format_money(cost.low)}–{format_money(cost.high)}",
        f"{format_energy(row.energy.value)}\n{format_energy(row.energy.low)}–{format_energy(row.energy.high)}"
        if row.energy
        else "",
        room.bound(row).removesuffix("-bound"),
        f"{by.time}\nmemory: {by.memory}",
    )
