from .beside import Beside as Beside, scheduling_beside as scheduling_beside
from .client.client import Client as Client
from .configuration import (
    Told as Told,
    check_names as check_names,
    near_misses as near_misses,
    read_file as read_file,
    read_settings as read_settings,
)
from .doctor import GROUPS as GROUPS, Examined as Examined, examine as examine, fit as fit
from .doctor.finding import Finding as Finding, State as State
from .health import (
    HEALTH_PATH as HEALTH_PATH,
    NotServingError as NotServingError,
    check_serving as check_serving,
)
from .log_lines import shown_log as shown_log
from .operations.desk import Desk as Desk
from .operations.models import ModelVersion as ModelVersion
from .operations.service import Service as Service
from .principal import LOCAL as LOCAL, Principal as Principal
from .run import require_installed as require_installed, scheduler_of as scheduler_of, serving as serving
from .settings import (
    Setting as Setting,
    Settings as Settings,
    masked as masked,
    plain_value as plain_value,
    settings_list as settings_list,
)
