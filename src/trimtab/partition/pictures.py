"""A plan's pictures on their own, for pages that have a frame already."""

from trimtab.partition.explain import stage_labels
from trimtab.partition.graph_picture import graph_picture
from trimtab.partition.schedule_picture import schedule_picture
from trimtab.partition.solution import Solution


def plan_pictures(found: Solution) -> tuple[str, str]:
    """The graph in its stages, and the schedule of one step: two whole SVG documents."""
    plan, labels = found.plan, stage_labels(found.devices, found.plan)
    graph = graph_picture(found.graph, plan.stage_of(len(found.graph)), labels)
    return _drawing(graph), _drawing(schedule_picture(plan, found.forecast, labels, found.recipe.training))


def _drawing(picture: str) -> str:
    """The drawing without what frames it on a report's page."""
    return picture[picture.index("<svg") : picture.rindex("</svg>") + len("</svg>")]
