"""The vault: a store as Markdown files in a git repository, which people may edit."""

from __future__ import annotations

from functools import partial

from reverie.agenda.worker import Handler, register


def _load(kind: str) -> Handler:
    # The vault's modules take time to load, and most processes run none of its jobs.
    from reverie.vault import jobs

    return {"mirror": jobs.mirror, "commit": jobs.commit}[kind]


register("mirror", partial(_load, "mirror"))
register("commit", partial(_load, "commit"))
