"""From turns to proposals to accepted changes."""

from __future__ import annotations

from reverie.agenda.worker import Handler, register

# Handlers are imported when the first job of their kind is due: importing Reverie stays quick.


def _learn() -> Handler:
    from reverie.learn.learner import learn

    return learn


def _summarise() -> Handler:
    from reverie.learn.summaries import summarise

    return summarise


register("learn", _learn)
register("summarise", _summarise)
