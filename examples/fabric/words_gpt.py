"""Predicts the next word: a GPT trained pipeline-parallel, a stage per worker.

    torchrun --nproc-per-node 2 examples/fabric/words_gpt.py --steps 100

A step's samples go through the pipeline in small batches: each stage passes on what it made of one and takes
the next; then the gradients come back the same way. A dead link holds up whoever waits for either.
"""

import resumable
import torch
from torch import Tensor, distributed, nn
from torch.nn import functional

VOCABULARY = 256
WORDS = 32


def texts(step: int, count: int) -> Tensor:
    """(count, words + 1). Each word has one that follows it nine times in ten."""
    following = torch.randperm(VOCABULARY, generator=resumable.random_of(1))
    random = resumable.random_of(2, step)
    words = torch.randint(VOCABULARY, (count, WORDS + 1), generator=random)
    usual = torch.rand(count, WORDS, generator=random) < 0.9
    for place in range(WORDS):
        words[:, place + 1] = torch.where(usual[:, place], following[words[:, place]], words[:, place + 1])
    return words


class Start(nn.Module):
    """Words to vectors, which know their place."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, width)
        self.places = nn.Embedding(WORDS, width)

    def forward(self, words: Tensor) -> Tensor:
        """(batch, words) to (batch, words, width)."""
        vectors: Tensor = self.words(words) + self.places.weight
        return vectors


class Layer(nn.Module):
    """Attention to the words before, then a dense network for each word, both around a shortcut."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm = nn.LayerNorm(width)
        self.queries_keys_values = nn.Linear(width, 3 * width)
        self.attended = nn.Linear(width, width)
        self.dense = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        """(batch, words, width) to the same."""
        batch, words, width = x.shape
        mixed = self.queries_keys_values(self.attention_norm(x))
        query, key, value = mixed.view(batch, words, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        attention = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.attended(attention.transpose(1, 2).reshape(batch, words, width))
        changed: Tensor = x + self.dense(x)
        return changed


def build_stage(width: int, layers: int, heads: int) -> nn.Module:
    """This worker's part of the model, which as a whole is the same however many workers share it."""
    makers = [
        lambda: Start(width),
        *[lambda: Layer(width, heads)] * layers,
        lambda: nn.Sequential(nn.LayerNorm(width), nn.Linear(width, VOCABULARY)),
    ]
    cuts = [1 + layers * stage // resumable.workers() for stage in range(1, resumable.workers())]
    first, end = [0, *cuts, len(makers)][resumable.rank() : resumable.rank() + 2]
    parts = []
    for number in range(first, end):
        torch.manual_seed(number)
        parts.append(makers[number]())
    return nn.Sequential(*parts)


class Pipeline:
    """This worker's stage between those before and after it."""

    def __init__(self, stage: nn.Module, width: int) -> None:
        self.stage, self.width = stage, width
        self.is_first = resumable.rank() == 0
        self.is_last = resumable.rank() == resumable.workers() - 1
        self.on_the_way: list[tuple[distributed.Work, Tensor]] = []

    def step(self, words: Tensor, small_batches: int) -> Tensor:
        """Forward with all small batches, then backward with all; gives the loss, known to the last stage."""
        passed = [self._forward(part) for part in words.chunk(small_batches)]
        for received, made in passed:
            self._backward(received, made, small_batches)
        for work, _ in self.on_the_way:
            work.wait()
        self.on_the_way.clear()
        total = (
            sum((made.detach() for _, made in passed), torch.zeros(())) if self.is_last else torch.zeros(())
        )
        return total / small_batches

    def _forward(self, words: Tensor) -> tuple[Tensor, Tensor]:
        shape = (len(words), WORDS, self.width)
        received = words[:, :-1] if self.is_first else self._receive(shape, -1).requires_grad_()
        made = self.stage(received)
        if self.is_last:
            made = functional.cross_entropy(made.flatten(0, 1), words[:, 1:].flatten())
        else:
            self._send(made.detach(), +1)
        return received, made

    def _backward(self, received: Tensor, made: Tensor, small_batches: int) -> None:
        if self.is_last:
            (made / small_batches).backward()
        else:
            made.backward(self._receive(made.shape, +1))
        if not self.is_first:
            assert received.grad is not None
            self._send(received.grad, -1)

    def _send(self, tensor: Tensor, to: int) -> None:
        work = distributed.isend(tensor, resumable.rank() + to)
        assert work is not None
        self.on_the_way.append((work, tensor))  # which must live until it has been sent

    def _receive(self, shape: tuple[int, ...], where: int) -> Tensor:
        tensor = torch.empty(shape)
        distributed.recv(tensor, resumable.rank() + where)
        return tensor


def main() -> None:
    """Train with AdamW."""
    parser = resumable.new_parser(__doc__, steps=200)
    parser.add_argument("--batch-size", type=int, default=16, help="of all small batches together")
    parser.add_argument("--small-batches", type=int, default=4)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--heads", type=int, default=4)
    options = resumable.read_options(parser)
    if options.layers < resumable.workers() or options.batch_size % options.small_batches:
        parser.error("--layers must be one for each worker or more, --small-batches must divide --batch-size")
    stage = build_stage(options.width, options.layers, options.heads)
    optimizer = torch.optim.AdamW(stage.parameters(), lr=3e-3)
    checkpoint = resumable.Checkpoint(options, parts=resumable.workers())
    done, state = checkpoint.load()
    if state is not None:
        stage.load_state_dict(state["stage"])
        optimizer.load_state_dict(state["optimizer"])
    with resumable.together(options.timeout):
        pipeline = Pipeline(stage, options.width)
        resumable.say_ready()
        for step in range(done + 1, options.steps + 1):
            optimizer.zero_grad()
            loss = pipeline.step(texts(step, options.batch_size), options.small_batches)
            optimizer.step()
            resumable.say_step(step, resumable.mean_of_all(loss * resumable.workers()))
            if checkpoint.due(step):
                checkpoint.save(step, {"stage": stage.state_dict(), "optimizer": optimizer.state_dict()})


if __name__ == "__main__":
    main()
