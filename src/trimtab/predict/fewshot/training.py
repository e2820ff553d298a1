"""PyTorch for training small networks: loaded only when used, from a seed, on few threads."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

from trimtab.core import MissingDependencyError
from trimtab.predict.fewshot.batches import Drawn


def load_torch(user: str) -> Any:
    """The module; `user` is who needs it, should it be missing."""
    try:
        import torch
    except ImportError:
        raise MissingDependencyError(f"{user} needs PyTorch: pip install 'trimtab[learn]'") from None
    return torch


@contextmanager
def seeded(torch: Any, seed: int, threads: int) -> Iterator[None]:
    """Compute from this seed with so many threads, and leave both as they were."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    # Weights that a penalty drives to zero would otherwise linger as numbers too small to compute with fast.
    torch.set_flush_denormal(True)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            yield
    finally:
        torch.set_flush_denormal(False)
        torch.set_num_threads(before)


def fully_connected(torch: Any, inputs: int, neurons: int, layers: int) -> Any:
    """A network of so many hidden layers and one answer, which is 0 until it is trained."""
    widths = [inputs, *[neurons] * layers]
    hidden = [
        module
        for before, after in pairwise(widths)
        for module in (torch.nn.Linear(before, after), torch.nn.ReLU())
    ]
    answer = torch.nn.Linear(neurons, 1)
    torch.nn.init.zeros_(answer.weight)
    torch.nn.init.zeros_(answer.bias)
    return torch.nn.Sequential(*hidden, answer)


def percentage_error(torch: Any, log_factor: Any, drawn: Drawn) -> Any:
    """The mean absolute percentage error of predicted seconds, over the targets that were measured."""
    off = torch.exp(log_factor - torch.from_numpy(drawn.log_factor)) - 1.0
    return off.abs()[torch.from_numpy(drawn.measured)].mean()


class Learning:
    """Adam with a penalty on squared weights and short gradients, slowing down along a cosine to a stop."""

    def __init__(self, torch: Any, groups: Sequence[Mapping[str, Any]], rate: float, steps: int) -> None:
        self.optimizer = torch.optim.Adam(groups, rate, fused=True)
        self.schedule = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, max(1, steps))
        self.weights = [weight for group in groups for weight in group["params"]]
        self.cut = torch.nn.utils.clip_grad_norm_

    def step(self, loss: Any, longest: float) -> None:
        """Descend once; the gradient is cut to the length `longest`."""
        self.optimizer.zero_grad()
        loss.backward()
        self.cut(self.weights, longest)
        self.optimizer.step()
        self.schedule.step()
