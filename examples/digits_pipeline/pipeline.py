"""The digits pipeline for Kubeflow; `python pipeline.py` compiles it to kubeflow.yaml with the package kfp.

The image must hold this folder as its working directory, with NumPy, scikit-learn and PyTorch.
"""

from pathlib import Path

from kfp import compiler, dsl

IMAGE = "example/digits:1"


@dsl.container_component
def load(raw: dsl.Output[dsl.Dataset]) -> dsl.ContainerSpec:
    return dsl.ContainerSpec(image=IMAGE, command=["python", "load.py"], args=["--output", raw.path])


@dsl.container_component
def preprocess(
    raw: dsl.Input[dsl.Dataset], train: dsl.Output[dsl.Dataset], test: dsl.Output[dsl.Dataset]
) -> dsl.ContainerSpec:
    return dsl.ContainerSpec(
        image=IMAGE,
        command=["python", "preprocess.py"],
        args=["--raw", raw.path, "--train", train.path, "--test", test.path],
    )


@dsl.container_component
def train(train: dsl.Input[dsl.Dataset], epochs: int, model: dsl.Output[dsl.Model]) -> dsl.ContainerSpec:
    return dsl.ContainerSpec(
        image=IMAGE,
        command=["python", "train.py"],
        args=["--train", train.path, "--model", model.path, "--epochs", epochs],
    )


@dsl.container_component
def infer(
    test: dsl.Input[dsl.Dataset], model: dsl.Input[dsl.Model], accuracy: dsl.Output[dsl.Metrics]
) -> dsl.ContainerSpec:
    return dsl.ContainerSpec(
        image=IMAGE,
        command=["python", "infer.py"],
        args=["--test", test.path, "--model", model.path, "--accuracy", accuracy.path],
    )


@dsl.pipeline(name="digits", description="Loads, preprocesses, trains and infers.")
def digits(epochs: int = 25) -> None:
    """One size for every stage, as is often done."""
    loaded = load()
    split = preprocess(raw=loaded.outputs["raw"])
    trained = train(train=split.outputs["train"], epochs=epochs)
    read = infer(test=split.outputs["test"], model=trained.outputs["model"])
    for task in (loaded, split, trained, read):
        task.set_cpu_request("2").set_cpu_limit("2").set_memory_request("8Gi").set_memory_limit("8Gi")
    for task in (trained, read):
        task.set_env_variable("OMP_NUM_THREADS", "1")


if __name__ == "__main__":
    compiler.Compiler().compile(digits, str(Path(__file__).with_name("kubeflow.yaml")))
