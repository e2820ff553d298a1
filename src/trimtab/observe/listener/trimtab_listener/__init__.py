"""Listens to a training script from inside: which model, which steps, which data. Never disturbs it."""

from __future__ import annotations

import os

from .quiet import end_quietly
from .record import Recorder
from .watch import call_after_import

FOLDER_VARIABLE = "TRIMTAB_LISTENER"
STOPPING = "stopping"  # a file of this name appears in the folder when Trimtab begins to end the command


def start() -> None:
    """Wait for the modules worth listening to; until then this costs nothing."""
    folder = os.environ.get(FOLDER_VARIABLE)
    if not folder or not os.path.isdir(folder):
        return
    recorder = Recorder(folder)
    end_quietly(os.path.join(folder, STOPPING))

    def argparse_loaded() -> None:
        from .arguments import listen

        listen(recorder)

    def loader_loaded() -> None:
        from .loader import listen

        listen()

    def optimizer_loaded() -> None:
        from .steps import listen

        listen(recorder)

    call_after_import(
        {
            "argparse": argparse_loaded,
            "torch.utils.data.dataloader": loader_loaded,
            "torch.optim.optimizer": optimizer_loaded,
        }
    )
