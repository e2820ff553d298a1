"""The encoder with all it knows: what ships."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trimtab.predict.fewshot import Case, Rows
from trimtab.predict.fewshot.encoder.distance import Acquaintance, Neighbourhood
from trimtab.predict.fewshot.encoder.inputs import Scaling
from trimtab.predict.fewshot.encoder.network import SHAPES, Encoder

_UNSEEN = "unseen."
_WEIGHT = "weight."


@dataclass(frozen=True, slots=True, eq=False)
class Shared:
    """One encoder for all data sets, and the neighbourhood it makes of them."""

    encoder: Encoder
    neighbourhood: Neighbourhood

    def acquaintance(self, case: Case, known: Rows) -> Acquaintance:
        """How well something like it is known."""
        return self.neighbourhood.acquaintance(self.encoder, case, known)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """What to keep in a file, beside `words`."""
        near = self.neighbourhood
        return {
            **{f"{_WEIGHT}{name}": each for name, each in self.encoder.weights.items()},
            **{f"{_UNSEEN}{name}": each for name, each in near.unseen.items()},
            "scaling.mean": self.encoder.scaling.mean,
            "scaling.deviation": self.encoder.scaling.deviation,
            "embeddings": near.embeddings,
            "owner": near.owner,
            "runs": near.runs,
            "scale": near.scale,
        }

    def words(self) -> dict[str, Any]:
        """The names of what was learned from."""
        return {"names": [list(each) for each in self.neighbourhood.names]}

    @classmethod
    def put_together(cls, arrays: Mapping[str, NDArray[Any]], words: Mapping[str, Any]) -> "Shared":
        """Back from a file; weights of other shapes are refused."""
        weights = {name: arrays[f"{_WEIGHT}{name}"] for name in SHAPES}
        wrong = [name for name, shape in SHAPES.items() if weights[name].shape != shape]
        if wrong:
            raise ValueError(f"the encoder's weights {wrong[0]} have another shape")
        names = tuple((str(corpus), str(name)) for corpus, name in words["names"])
        if len(arrays["owner"]) != len(arrays["embeddings"]) or np.max(arrays["owner"]) >= len(names):
            raise ValueError("the encoder's embeddings belong to nobody")
        return cls(
            Encoder(weights, Scaling(arrays["scaling.mean"], arrays["scaling.deviation"])),
            Neighbourhood(
                arrays["embeddings"],
                arrays["owner"],
                arrays["runs"],
                arrays["scale"],
                names,
                {name.removeprefix(_UNSEEN): a for name, a in arrays.items() if name.startswith(_UNSEEN)},
            ),
        )
