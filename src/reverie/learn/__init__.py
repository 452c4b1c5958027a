"""Learning: facts found in the turns of a session become memories or proposals."""

from __future__ import annotations

from reverie.agenda.worker import Handler, register

# A handler's module is imported when its first job is due, so that importing Reverie stays quick.


def _learn() -> Handler:
    from reverie.learn.learner import learn

    return learn


def _summarise() -> Handler:
    from reverie.learn.summaries import summarise

    return summarise


register("learn", _learn)
register("summarise", _summarise)
