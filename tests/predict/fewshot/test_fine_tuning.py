"""Light fine-tuning on an application's own runs."""

from dataclasses import replace

import numpy as np

from trimtab.predict.fewshot.case import Corpus
from trimtab.predict.fewshot.encoder import Encoder
from trimtab.predict.fewshot.fine_tuning import STEPS, adapt


def test_two_runs_are_enough_and_the_answer_is_a_time(encoder: Encoder, corpus: Corpus) -> None:
    for case in corpus.cases[:6]:
        known = np.array([0, 3])
        adapted = adapt(encoder, case.known_at(known), known)
        assert adapted.steps in STEPS
        result = adapted.predict(case.known_at(known), known)
        assert np.isfinite(result).all()
        assert (result > 0).all()


def test_where_nothing_is_missed_nothing_changes(encoder: Encoder, corpus: Corpus) -> None:
    case, known = corpus.cases[0], np.array([0, 3])
    adapted = replace(adapt(encoder, case, known), offset=np.zeros(65))
    np.testing.assert_allclose(adapted.predict(case, known), encoder.predict(case, known), rtol=1e-6)
