from .decision import (
    Line as Line,
    prediction_decision as prediction_decision,
    prediction_lines as prediction_lines,
)
from .drift import drift_after as drift_after
from .examples import (
    asked_in as asked_in,
    believable as believable,
    catch_up as catch_up,
    compared as compared,
    measured_after as measured_after,
    measured_in as measured_in,
    note_outcome as note_outcome,
    quantity_at as quantity_at,
    remember as remember,
)
from .finding import Finding as Finding, raise_events as raise_events
from .guard import Guarded as Guarded, guarded as guarded
from .model import (
    Foundation as Foundation,
    load_foundation as load_foundation,
    shipped_foundation as shipped_foundation,
)
from .prediction import Prediction as Prediction, predict as predict
from .pretraining import pretrain as pretrain
from .report import prediction_report as prediction_report
from .request import Request as Request, read_request as read_request
from .surroundings import all_drift as all_drift
from .update import (
    Comparison as Comparison,
    Plan as Plan,
    plan_update as plan_update,
    update_weights as update_weights,
)
from .versions import (
    SHIPPED_VERSION as SHIPPED_VERSION,
    Current as Current,
    Versions as Versions,
    current_foundation as current_foundation,
    version_name as version_name,
)
from .words import cost_scale as cost_scale, explained as explained
