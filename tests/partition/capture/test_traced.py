"""A traced model runs without values as far as that goes."""

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="capturing a model needs PyTorch")

from torch import nn  # noqa: E402

from trimtab.partition.capture.traced import NeedsValuesError, from_program  # noqa: E402


def test_a_branch_that_values_decide_is_not_guessed() -> None:
    class Branching(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.other = nn.Linear(8, 8), nn.Linear(8, 8)

        def forward(self, x: Any) -> Any:
            return torch.cond(x.sum() > 0, self.one, self.other, (x,))

    program = torch.export.export(Branching(), (torch.randn(2, 8),))
    with pytest.raises(NeedsValuesError, match="cond"):
        from_program(program, 2)
