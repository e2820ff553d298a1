"""Who starts the workers."""

import pytest

from trimtab.engines.jobfiles.script import Launcher, launcher, torchrun_arguments


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("python train.py", Launcher.TORCHRUN),
        ("python3.11 -u -X dev train.py", Launcher.TORCHRUN),
        ("/opt/venv/bin/python -m package.train", Launcher.TORCHRUN),
        ("python -c pass", Launcher.COMMAND),
        ("python -", Launcher.COMMAND),
        ("python", Launcher.COMMAND),
        ("python -m torch.distributed.run train.py", Launcher.COMMAND),
        ("torchrun --nproc-per-node 2 train.py", Launcher.COMMAND),
        ("accelerate launch train.py", Launcher.COMMAND),
        ("./train.sh", Launcher.COMMAND),
        ("mpirun -np 8 python train.py", Launcher.FIRST_NODE),
    ],
)
def test_torchrun_comes_only_before_python_programs(command: str, expected: Launcher) -> None:
    assert launcher(tuple(command.split()), devices=8) is expected
    assert launcher(tuple(command.split()), devices=1) is Launcher.NONE


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("python train.py --x", "train.py --x"),
        ("python3 -m package.train", "-m package.train"),
        ("python -u train.py", "--no-python python -u train.py"),
        ("/opt/venv/bin/python train.py", "--no-python /opt/venv/bin/python train.py"),
    ],
)
def test_an_interpreters_path_and_options_are_kept(command: str, expected: str) -> None:
    assert torchrun_arguments(tuple(command.split())) == tuple(expected.split())
