from .hardware import (
    FORMATS as FORMATS,
    Accelerator as Accelerator,
    Interconnect as Interconnect,
    accelerator as accelerator,
    accelerators as accelerators,
    find_accelerator as find_accelerator,
    measured_constants as measured_constants,
)
from .importing import ImportReport as ImportReport, import_offers as import_offers
from .offers import load_offers as load_offers
from .table import (
    OfferTable as OfferTable,
    Strings as Strings,
    load_table as load_table,
    save_table as save_table,
)
