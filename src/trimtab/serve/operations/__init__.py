"""What can be asked of Trimtab, whoever carries the question: an API, a dashboard, the command line.

Every operation is asked for by a principal and refuses what that one may not do, so nobody can forget to.
"""

from trimtab.serve.operations.calibration import Calibration, calibrations
from trimtab.serve.operations.catalog import WantedOffers
from trimtab.serve.operations.desk import AUDIT, Desk
from trimtab.serve.operations.events import visible
from trimtab.serve.operations.fleet import PoolNow
from trimtab.serve.operations.happenings import Happening
from trimtab.serve.operations.jobs import LARGEST_PIECE, LogPiece
from trimtab.serve.operations.models import ModelVersion
from trimtab.serve.operations.recommendations import Wish
from trimtab.serve.operations.service import Service
from trimtab.serve.operations.workloads import SeenWorkload

__all__ = [
    "AUDIT",
    "LARGEST_PIECE",
    "Calibration",
    "Desk",
    "Happening",
    "LogPiece",
    "ModelVersion",
    "PoolNow",
    "SeenWorkload",
    "Service",
    "WantedOffers",
    "Wish",
    "calibrations",
    "visible",
]
