"""Learning: facts found in the turns of a session become memories or proposals."""

from __future__ import annotations

from functools import partial

from reverie.agenda.worker import Handler, register


def _load(kind: str) -> Handler:
    # numpy and pydantic take time to load, and most processes run none of these jobs.
    from reverie.learn import learner, summaries

    return {"learn": learner.learn, "summarise": summaries.summarise}[kind]


register("learn", partial(_load, "learn"))
register("summarise", partial(_load, "summarise"))
