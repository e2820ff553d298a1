from .access import LOCAL as LOCAL, Principal as Principal
from .client import Client as Client
from .doctor import (
    GROUPS as GROUPS,
    Examined as Examined,
    Finding as Finding,
    FindingState as FindingState,
    examine as examine,
    fit as fit,
)
from .operations import (
    SORT_COLUMNS as SORT_COLUMNS,
    Backend as Backend,
    ModelVersion as ModelVersion,
    Service as Service,
    find_offers as find_offers,
    plan_partition as plan_partition,
    recommend_configuration as recommend_configuration,
)
from .processes.scheduler import (
    SchedulerProcess as SchedulerProcess,
    scheduler_factory as scheduler_factory,
    scheduler_process as scheduler_process,
)
from .processes.server import (
    HEALTH_PATH as HEALTH_PATH,
    NotServingError as NotServingError,
    check_serving as check_serving,
    require_installed as require_installed,
    serving as serving,
)
from .processes.supervision import log_to_stderr as log_to_stderr
from .settings import (
    LoadedSettings as LoadedSettings,
    ServiceSetting as ServiceSetting,
    Settings as Settings,
    check_names as check_names,
    masked as masked,
    near_misses as near_misses,
    plain_value as plain_value,
    read_file as read_file,
    read_settings as read_settings,
    settings_list as settings_list,
)
