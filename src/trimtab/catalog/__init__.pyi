from .hardware import (
    FORMATS as FORMATS,
    Accelerator as Accelerator,
    Interconnect as Interconnect,
    accelerator as accelerator,
    accelerators as accelerators,
    find_accelerator as find_accelerator,
    link_constants as link_constants,
    measured_constants as measured_constants,
    stage_constants as stage_constants,
    traced_laws as traced_laws,
)
from .importing import ImportReport as ImportReport, import_offers as import_offers
from .offers import (
    ARCHITECTURES as ARCHITECTURES,
    architecture as architecture,
    load_offers as load_offers,
)
from .table import (
    OfferTable as OfferTable,
    Strings as Strings,
    load_table as load_table,
    save_table as save_table,
)
