"""Maintenance of a store: verify, rebuild, reembed, salvage, doctor, and jobs about memories."""

from __future__ import annotations

from reverie.agenda.worker import register
from reverie.maintenance import job_handlers

register("embed", lambda: job_handlers.fill_vectors)
register("expire", lambda: job_handlers.forget_expired)
register("prune", lambda: job_handlers.prune_recalls)
register("scrub", lambda: job_handlers.finish_erasure)
