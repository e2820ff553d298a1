"""A sized pipeline on the terminal: a table, reasons, what it reserves; or the same as JSON."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

    from trimtab.pipelines import Pipeline, Reserved, Sized


def sized_json(
    told: "Pipeline",
    sized: "Sequence[Sized]",
    decisions: Mapping[str, str],
    reserved: "Mapping[str, Reserved]",
) -> dict[str, Any]:
    """Seconds, cores, bytes; decisions by stage, where they are kept."""
    from trimtab.core import to_plain

    return {
        "pipeline": told.name,
        "format": told.format,
        "stages": [
            {
                "stage": each.stage.name,
                "decision": decisions.get(each.stage.name),
                "use": to_plain(each.use),
                "asked": to_plain(each.stage.asked),
                "request": to_plain(each.request),
                "memory": to_plain(each.memory),
                "time": to_plain(each.time),
                "profile": each.profile.id,
                "reason": each.reason,
            }
            for each in sized
        ],
        "reserved": {name.replace(" ", "_"): to_plain(each) for name, each in reserved.items()},
    }


def print_sized(
    told: "Pipeline",
    sized: "Sequence[Sized]",
    decisions: Mapping[str, str],
    reserved: "Mapping[str, Reserved]",
    written: Sequence[str],
) -> None:
    """Everything a person wants to know, `written` last: the files that were."""
    from rich.console import Console
    from rich.table import Table

    from trimtab.core import format_bytes, format_duration

    console = Console(highlight=False)
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("stage", overflow="fold", min_width=10)
    for name in ("time", "CPU peak, mean", "memory peak"):
        table.add_column(name, justify="right", no_wrap=True)
    for name in ("CPU request", "memory request"):
        table.add_column(name, no_wrap=True)
    for each in sized:
        use = each.use
        table.add_row(
            each.stage.name,
            format_duration(use.seconds),
            f"{use.cpu_peak:.2f}, {use.cpu_mean:.2f}",
            format_bytes(use.memory_peak),
            *_before_and_after(each),
        )
    console.print(f"{told.name}: {len(sized)} stages ({told.format})", markup=False)
    console.print(table)
    for each in sized:
        kept = decisions.get(each.stage.name)
        decision = f" (decision {kept})" if kept else ""
        console.print(
            f"{each.stage.name}: {each.reason}{decision}", markup=False, style="dim", soft_wrap=True
        )
    _print_reserved(console, reserved)
    for line in written:
        console.print(line, markup=False, soft_wrap=True)
    if not written:
        console.print("Next: the same with -o SIZED.yaml writes these requests into the file.", markup=False)


def _before_and_after(each: "Sized") -> tuple[str, str]:
    from trimtab.pipelines import format_cpu, format_memory

    asked, request = each.stage.asked, each.request
    cpu = "none" if asked.cpu is None else format_cpu(asked.cpu)
    memory = "none" if asked.memory is None else format_memory(asked.memory)
    return f"{cpu} → {format_cpu(request.cpu)}", f"{memory} → {format_memory(request.memory)}"


def _print_reserved(console: "Console", reserved: "Mapping[str, Reserved]") -> None:
    from trimtab.core import GIB

    own = reserved["each its own"]
    for name, each in reserved.items():
        line = f"reserved, {name}: {each.core_seconds:,.1f} core·s, {each.byte_seconds / GIB:,.1f} GiB·s"
        if each is not own and each.core_seconds and each.byte_seconds:
            cpu, memory = own.core_seconds / each.core_seconds, own.byte_seconds / each.byte_seconds
            line += f" (each its own takes {cpu:.0%} of the CPU and {memory:.0%} of the memory of it)"
        console.print(line, markup=False, soft_wrap=True)
