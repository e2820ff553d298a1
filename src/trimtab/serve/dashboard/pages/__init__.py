"""All pages, in the order of the navigation. Adding one is a file and a line here."""

from trimtab.serve.dashboard.pages.catalog import PAGE as CATALOG
from trimtab.serve.dashboard.pages.decisions import PAGE as DECISIONS
from trimtab.serve.dashboard.pages.fabric import PAGE as FABRIC
from trimtab.serve.dashboard.pages.fleet import PAGE as FLEET
from trimtab.serve.dashboard.pages.jobs import PAGE as JOBS
from trimtab.serve.dashboard.pages.models import PAGE as MODELS
from trimtab.serve.dashboard.pages.partition import PAGE as PARTITION
from trimtab.serve.dashboard.pages.recommend import PAGE as RECOMMEND
from trimtab.serve.dashboard.pages.resize import PAGE as RESIZE
from trimtab.serve.dashboard.registry import Page

PAGES: tuple[Page, ...] = (FLEET, JOBS, RECOMMEND, PARTITION, RESIZE, FABRIC, DECISIONS, MODELS, CATALOG)
