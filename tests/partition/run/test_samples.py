"""What a run trains on."""

from typing import Any

import pytest
import torch
from hypothesis import given, strategies as st

from trimtab.core import BadInputError
from trimtab.partition import Plan, capture_model
from trimtab.partition.capture.builder import load_builder
from trimtab.partition.run.samples import InputFacts, Samples, inputs_of, mean_of_squares, outputs_of

FLOATS = InputFacts((2, 3), torch.float32, True, 2)
WORDS = InputFacts((2, 5), torch.long, True, 7)
FIXED = InputFacts((4,), torch.float32, False, 2)


@given(
    shares=st.lists(st.integers(1, 4), min_size=1, max_size=4),
    microbatches=st.integers(1, 4),
    number=st.integers(0, 5),
)
def test_every_sample_goes_to_exactly_one_replica_and_micro_batch(
    shares: list[int], microbatches: int, number: int
) -> None:
    plan = Plan((), tuple(shares), microbatches)
    samples = Samples((FLOATS, FIXED), 1)
    inputs, _ = samples.step(number, plan.batch)
    pieces = [
        samples.inputs_of(inputs, plan, replica, microbatch)
        for microbatch in range(microbatches)
        for replica in range(len(shares))
    ]
    assert torch.equal(torch.cat([piece[0] for piece in pieces]), inputs[0])
    assert all(torch.equal(piece[1], inputs[1]) for piece in pieces)
    for replica, share in enumerate(shares):
        whole = samples.replica_inputs(inputs, plan, replica)
        assert whole[0].shape == (share * microbatches, 3)
        assert torch.equal(whole[0][:share], pieces[replica][0])


def test_the_same_seed_gives_the_same_samples_and_another_step_gives_others() -> None:
    one, other = Samples((FLOATS, WORDS, FIXED), 5), Samples((FLOATS, WORDS, FIXED), 5)
    first, again, later = one.step(0, 8)[0], other.step(0, 8)[0], one.step(1, 8)[0]
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not torch.equal(first[0], later[0])
    assert torch.equal(first[2], later[2])
    assert int(first[1].max()) < 7


def test_words_stay_below_the_table_they_are_looked_up_in(target: Any) -> None:
    built = load_builder(target("decoder"))
    program = capture_model(built.model, built.inputs, "decoder").program
    assert program is not None
    (words,) = inputs_of(program, [True])
    assert (words.limit, words.dtype) == (64, torch.long)


def test_outputs_come_back_in_the_models_own_form(target: Any) -> None:
    built = load_builder(target("pair"))
    program = capture_model(built.model, built.inputs, "pair").program
    assert program is not None
    early, late = torch.ones(2, 6), torch.zeros(2, 6)
    assert outputs_of(program).rebuilt((early, late)) == {"early": early, "late": late}


def test_batches_of_the_wrong_shape_or_number_are_refused() -> None:
    narrow = Samples((FLOATS,), 0, lambda samples, generator: torch.zeros(samples, 2))
    with pytest.raises(BadInputError, match=r"\(4, 2\).*\(4, 3\)"):
        narrow.step(0, 4)
    many = Samples((FLOATS,), 0, lambda samples, generator: (torch.zeros(4, 3),) * 3)
    with pytest.raises(BadInputError, match=r"\b3\b.*\b1\b"):
        many.step(0, 4)


def test_targets_are_cut_like_inputs() -> None:
    plan = Plan((), (1, 3), 2)
    samples = Samples((FLOATS,), 0, lambda count, generator: (torch.zeros(count, 3), torch.arange(count)))
    _, targets = samples.step(0, plan.batch)
    assert samples.targets_of(targets, plan, 1, 1).tolist() == [5, 6, 7]


def test_a_model_without_numbers_to_train_needs_a_loss() -> None:
    assert float(mean_of_squares({"found": torch.full((2, 2), 3.0)}, None)) == 9.0
    with pytest.raises(BadInputError, match="loss"):
        mean_of_squares(torch.zeros(2, dtype=torch.long), None)
