"""Tells tensors of fixed size (weights, their gradients, their state) from those that grow with the batch."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from .tensors import storage_of


class Weights:
    """Knows the model's and the optimizer's tensors by their memory, and gradients by their shapes."""

    def __init__(self, fixed: list[torch.Tensor], parameters: list[torch.Tensor]) -> None:
        self._storages = {storage_of(tensor) for tensor in fixed} - {0}
        self._shapes = {_core(p.shape) for p in parameters} | {_core(reversed(p.shape)) for p in parameters}
        self._activations: set[tuple[int, ...]] = set()
        self._adopted: list[torch.Tensor] = []

    def owns(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor is one of the model's or the optimizer's own, or a view of one."""
        return storage_of(tensor) in self._storages

    def adopt(self, operands: list[torch.Tensor], results: list[torch.Tensor]) -> None:
        """Count a weight in another number format, as autocast makes it, among the model's own.

        It is held on to, so that nothing else can come to lie at its address.
        """
        if operands and all(self.owns(tensor) for tensor in operands):
            self._adopted.extend(results)
            self._storages.update(storage_of(tensor) for tensor in results)

    def seen_forward(self, results: Iterable[torch.Tensor]) -> None:
        """Remember activations' shapes: the gradient of one may be shaped like a weight by chance."""
        for tensor in results:
            if tensor.dim() > 1 and not self.owns(tensor):
                shape = _core(tensor.shape)
                self._activations.update((shape, shape[::-1]))

    def is_fixed(self, tensor: torch.Tensor, phase: str) -> bool:
        """Whether a tensor's size does not depend on the batch's."""
        if tensor.dim() == 0 or phase == "optimizer" or self.owns(tensor):
            return True
        shape = _core(tensor.shape)
        if phase == "backward":
            return shape in self._shapes and shape not in self._activations
        return tensor.dim() == 1 and shape in self._shapes

    def makes_gradient(self, kind: str, operands: list[torch.Tensor]) -> bool:
        """Whether an operator of the backward pass computes a weight's gradient.

        A product with a weight in it passes the gradient on to the layer before; one without makes the
        weight's own.
        """
        return kind == "embedding" or (kind == "matmul" and not any(self.owns(t) for t in operands))

    def is_shaped_like_one(self, tensor: torch.Tensor) -> bool:
        """Whether some parameter has this shape, either way round."""
        return _core(tensor.shape) in self._shapes


def _core(shape: Iterable[int]) -> tuple[int, ...]:
    """A shape without its dimensions of one element, which come and go around a parameter's gradient."""
    return tuple(size for size in shape if size != 1)
