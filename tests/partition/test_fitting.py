"""Changes that would make a model fit are tried before they are named."""

from collections.abc import Callable

from trimtab.partition import Devices, Graph, Recipe, SearchSettings, Solution, devices_of, plan_by, why_not

MakeGraph = Callable[..., Graph]


def sentence(graph: Graph, devices: Devices, recipe: Recipe, settings: SearchSettings) -> str:
    result = plan_by("ours", graph, devices, recipe, settings)
    assert not result.forecast.fits

    def solver(*arguments: object) -> Solution:
        return plan_by("ours", graph, *arguments)  # type: ignore[arg-type]

    return why_not(result, settings, solver)


def test_what_the_options_rule_out_and_smaller_batches_are_offered(make_graph: MakeGraph) -> None:
    graph, settings = make_graph(width=1024, tokens=100_000), SearchSettings(microbatches=1)
    message = sentence(graph, devices_of("t4"), Recipe(16, "bf16"), settings)
    assert message.endswith(
        "it would fit without --microbatches, or with 3 more T4 (4 in all), or with --batch 4"
    )


def test_computing_again_is_offered_where_it_was_ruled_out(make_graph: MakeGraph) -> None:
    graph = make_graph(blocks=8, width=1024, tokens=400_000)
    settings = SearchSettings(pipeline_only=True, microbatches=8, recompute=False)
    message = sentence(graph, devices_of("t4:2"), Recipe(8, "bf16"), settings)
    assert "without --no-recompute" in message


def test_half_precision_is_offered_where_that_is_enough(make_graph: MakeGraph) -> None:
    graph = make_graph(width=1024, tokens=200_000)
    message = sentence(graph, devices_of("t4"), Recipe(2, "fp32"), SearchSettings(microbatches=1))
    assert "with --precision fp16" in message


def test_parts_that_no_link_joins_are_named_only_if_links_would_help(make_graph: MakeGraph) -> None:
    graph, apart = make_graph(blocks=5, width=8192), devices_of("t4:1,v100:1", network="none")
    message = sentence(graph, apart, Recipe(4, "bf16"), SearchSettings())
    assert "more T4" in message or "more V100" in message
    smaller = make_graph(blocks=3, width=6400)
    message = sentence(smaller, apart, Recipe(4, "bf16"), SearchSettings())
    assert "T4:0 and V100:0" in message
