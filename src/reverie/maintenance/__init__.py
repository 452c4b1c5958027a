"""Maintenance of a store: verify, rebuild, reembed, salvage, doctor, and jobs about memories."""

from __future__ import annotations

from reverie.agenda.worker import Handler, register

# A handler's module is imported when its first job is due, so that importing Reverie stays quick.


def _embed() -> Handler:
    from reverie.maintenance.job_handlers import fill_vectors

    return fill_vectors


def _expire() -> Handler:
    from reverie.maintenance.job_handlers import forget_expired

    return forget_expired


def _prune() -> Handler:
    from reverie.maintenance.job_handlers import prune_recalls

    return prune_recalls


def _scrub() -> Handler:
    from reverie.maintenance.job_handlers import finish_erasure

    return finish_erasure


register("embed", _embed)
register("expire", _expire)
register("prune", _prune)
register("scrub", _scrub)
