"""The vault: a store as Markdown files in a git repository, which people may edit."""

from __future__ import annotations

from reverie.agenda.worker import Handler, register

# A handler's module is imported when its first job is due, so that importing Reverie stays quick.


def _mirror() -> Handler:
    from reverie.vault.jobs import mirror

    return mirror


def _commit() -> Handler:
    from reverie.vault.jobs import commit

    return commit


register("mirror", _mirror)
register("commit", _commit)
