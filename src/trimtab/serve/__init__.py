"""How is it run? Its settings, whether this machine is fit for it, and what it serves."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from trimtab.serve.settings import Setting, Settings, masked, plain_value, settings_list

if TYPE_CHECKING:
    from trimtab.serve.beside import Beside, scheduling_beside
    from trimtab.serve.client import Client
    from trimtab.serve.configuration import Told, check_names, near_misses, read_file, read_settings
    from trimtab.serve.doctor import GROUPS, Examined, Finding, State, examine, fit
    from trimtab.serve.health import HEALTH_PATH, NotServingError, check_serving
    from trimtab.serve.log_lines import shown_log
    from trimtab.serve.principal import LOCAL, Principal
    from trimtab.serve.run import require_installed, scheduler_of, serving
    from trimtab.serve.service import Desk, ModelVersion, Service

__all__ = [
    "GROUPS",
    "HEALTH_PATH",
    "LOCAL",
    "Beside",
    "Client",
    "Desk",
    "Examined",
    "Finding",
    "ModelVersion",
    "NotServingError",
    "Principal",
    "Service",
    "Setting",
    "Settings",
    "State",
    "Told",
    "check_names",
    "check_serving",
    "examine",
    "fit",
    "masked",
    "near_misses",
    "plain_value",
    "read_file",
    "read_settings",
    "require_installed",
    "scheduler_of",
    "scheduling_beside",
    "serving",
    "settings_list",
    "shown_log",
]

# The command line reads the settings' names at every start; the rest waits until it is asked for.
_LAZY = {
    "GROUPS": "doctor",
    "HEALTH_PATH": "health",
    "LOCAL": "principal",
    "Beside": "beside",
    "Client": "client",
    "Desk": "service",
    "ModelVersion": "service",
    "Principal": "principal",
    "Service": "service",
    "Examined": "doctor",
    "Finding": "doctor",
    "NotServingError": "health",
    "State": "doctor",
    "Told": "configuration",
    "check_names": "configuration",
    "check_serving": "health",
    "examine": "doctor",
    "fit": "doctor",
    "near_misses": "configuration",
    "read_file": "configuration",
    "read_settings": "configuration",
    "require_installed": "run",
    "scheduler_of": "run",
    "serving": "run",
    "scheduling_beside": "beside",
    "shown_log": "log_lines",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)
