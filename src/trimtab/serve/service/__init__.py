"""What can be asked of Trimtab, whoever carries the question: an API, a dashboard, the command line.

Every operation is asked for by a principal and refuses what that one may not do, so nobody can forget to.
"""

from trimtab.serve.service.calibration import Calibration, calibrations
from trimtab.serve.service.catalog import WantedOffers
from trimtab.serve.service.desk import AUDIT, Desk
from trimtab.serve.service.events import visible
from trimtab.serve.service.fleet import PoolNow
from trimtab.serve.service.happenings import Happening
from trimtab.serve.service.jobs import LARGEST_PIECE, LogPiece
from trimtab.serve.service.models import ModelVersion
from trimtab.serve.service.recommendations import Wish
from trimtab.serve.service.service import Service
from trimtab.serve.service.workloads import SeenWorkload

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
