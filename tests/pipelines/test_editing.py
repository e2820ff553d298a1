"""Edits of a text: what was meant, and nothing else."""

import json
import re

import pytest
import yaml
from hypothesis import given, settings, strategies as st

from trimtab.core import BadInputError
from trimtab.pipelines.editing import FieldChange, changed, load

TEXT = """\
# What it is for.
stages:
  - name: load   # first
    command: a
    resources:
      cpu: 4   # too much
      memory: 8Gi
    # before inputs
    inputs: [x]

  - {name: flow, resources: {cpu: 1}}
  - name: last
    command: |
      echo one

      echo two

# the end
"""


def put(number: int, key: str = "resources", value: object = None) -> FieldChange:
    return FieldChange((0, "stages", number), key, value or {"cpu": "500m", "memory": "64Mi"})


def test_only_the_named_values_change_and_comments_stay() -> None:
    text, kept = changed(TEXT, [put(0), put(1), put(2)])
    assert kept
    assert [line for line in text.splitlines() if "#" in line and "cpu" not in line] == [
        line for line in TEXT.splitlines() if "#" in line and "cpu" not in line
    ]
    assert re.search(r"cpu: 500m +# too much\n", text)
    assert text.index("# before inputs") < text.index("inputs: [x]")
    assert text.index("64Mi", text.index("echo two")) < text.index("# the end")
    before, after = yaml.safe_load(TEXT), yaml.safe_load(text)
    assert [stage.pop("resources") for stage in after["stages"]] == [{"cpu": "500m", "memory": "64Mi"}] * 3
    for stage in before["stages"]:
        stage.pop("resources", None)
    assert after == before


def test_two_new_keys_come_in_their_order() -> None:
    text, _ = changed("stages:\n- name: a  # a\n", [put(0), put(0, "accelerator", "T4:1")])
    assert text == (
        "stages:\n- name: a  # a\n  resources:\n    cpu: 500m\n    memory: 64Mi\n  accelerator: T4:1\n"
    )


def test_a_comment_below_a_key_stays_when_the_key_goes() -> None:
    text = "stages:\n- name: a\n  accelerator: T4:1  # gone too\n\n# The next.\n- name: b\n"
    edited, kept = changed(text, [FieldChange((0, "stages", 0), "accelerator", None)])
    assert kept
    assert edited == "stages:\n- name: a\n\n# The next.\n- name: b\n"


def test_quotes_stay_as_they_are() -> None:
    text = "stages:\n    - name: 'a'\n      command: \"b\"\n      environment: {SEED: '1'}\n"
    edited, kept = changed(text, [put(0)])
    assert kept
    assert edited == text + "      resources:\n          cpu: 500m\n          memory: 64Mi\n"


def test_lines_end_as_they_did() -> None:
    text, kept = changed("stages:\r\n- name: a\r\n  command: b\r\n", [put(0)])
    assert kept
    assert text.count("\n") == text.count("\r\n") == 6


@pytest.mark.parametrize(
    "text",
    [
        "base: &b {resources: {cpu: 1}}\nstages:\n- *b\n# comment\n",
        "base: &b {cpu: 1}\nstages:\n- name: a\n  resources: *b\n",
        "base: &b {resources: {cpu: 9}}\nstages:\n- <<: *b\n  name: a\n",
        "stages:\n- name: a\n  resources: &r {cpu: 1}\n- name: b\n  resources: *r\n",
        "stages:\n- ? name\n  : a\n",
        "stages:\n- name: a\n  name: b\n",
    ],
    ids=["whole", "value", "merged", "anchor", "explicit", "twice"],
)
def test_aliases_change_only_where_they_should(text: str) -> None:
    expected = load(text)[0]
    expected["stages"][0]["resources"] = {"cpu": "500m", "memory": "64Mi"}
    assert load(changed(text, [put(0)])[0]) == (expected,)


def test_a_key_can_be_taken_away() -> None:
    text, kept = changed(
        TEXT, [FieldChange((0, "stages", 0), "inputs", None), FieldChange((0,), "none", None)]
    )
    assert kept
    assert text == TEXT.replace("    inputs: [x]\n", "")


def test_json_stays_json() -> None:
    text, kept = changed(json.dumps({"stages": [{"name": "a"}]}, indent=2), [put(0)])
    assert kept
    assert json.loads(text)["stages"] == [{"name": "a", "resources": {"cpu": "500m", "memory": "64Mi"}}]


names = st.text("abcxyz: #'\"-{}[]|>&*!%@`\n\t", min_size=1, max_size=6)
scalars = st.one_of(st.none(), st.booleans(), st.integers(), names, st.floats(allow_nan=False))
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.dictionaries(names | st.just("resources"), values, min_size=1), min_size=1, max_size=4),
    st.sampled_from([None, True, False]),
    st.data(),
)
def test_any_document_says_what_was_meant(
    stages: list[dict[str, object]], flow: bool | None, data: st.DataObject
) -> None:
    text = yaml.safe_dump({"stages": stages}, default_flow_style=flow, sort_keys=False)
    number = data.draw(st.integers(0, len(stages) - 1))
    expected = load(text)[0]
    expected["stages"][number]["resources"] = {"cpu": "1"}
    assert load(changed(text, [put(number, value={"cpu": "1"})])[0]) == (expected,)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a: &a [*a]\n", "contains it"),
        (
            "a: &a [1, 1, 1, 1, 1, 1, 1, 1]\n"
            + "".join(
                f"{n}: &{n} [{', '.join([f'*{o}'] * 8)}]\n"
                for o, n in zip("abcdefgh", "bcdefghi", strict=True)
            ),
            "more than",
        ),
    ],
    ids=["itself", "billions"],
)
def test_aliases_without_end_are_refused(text: str, sentence: str) -> None:
    with pytest.raises(BadInputError, match=sentence):
        load(text)
