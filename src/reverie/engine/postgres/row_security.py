"""Walls between owners in PostgreSQL: row-level security, forced on every table.

A transaction takes on a role that owns nothing, and says with ``SET LOCAL`` whose rows it is about.
A statement that forgets its condition then finds nothing of anybody else. Conditions on the space
and the owner are index conditions, so that they cost nothing for each row, and they hold no
subquery, so that they can be distributed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from psycopg import Connection, errors, sql

from reverie.errors import ConfigError
from reverie.protocols import Owner, Row

# The one sees what it says it is about, the other everything.
APPLICATION, OPERATOR = "reverie_app", "reverie_operator"

# "space,owner", and "*" behind them where the log of the whole space is meant.
_PART = "split_part(current_setting('reverie.owner', true), ',', {})"
_SPACE = f"space = NULLIF({_PART.format(1)}, '')::bigint"
_OWNER = f"owner = ANY (ARRAY[0, NULLIF({_PART.format(2)}, '')::bigint])"
_OWN_ROWS = f"{_SPACE} AND {_OWNER}"
_POLICIES = {
    "meta": "true",
    "spaces": f"name = current_setting('reverie.space_name', true) OR {_SPACE}",
    "owners": f"{_SPACE} AND ({_OWNER} OR name = current_setting('reverie.user_name', true))",
    "counters": _SPACE,
}
_WHOLE_SPACE = f"{_SPACE} AND {_PART.format(3)} = '*'"

SET_OPERATOR_ROLE = f"SET LOCAL ROLE {OPERATOR}"
CLEAR_OWNER = "SET LOCAL reverie.owner = ''"


def set_space_name(space: str) -> str:
    return f"SET LOCAL reverie.space_name ={_quoted(space)}"


def set_user_name(user: str) -> str:
    return f"SET LOCAL reverie.user_name ={_quoted(user)}"


def set_owner(owner: Owner, *, across: bool = False) -> str:
    whole = ",*" if across else ""
    return f"SET LOCAL reverie.owner = '{int(owner.space)},{int(owner.number)}{whole}'"


def _quoted(text: str) -> str:
    """A literal that means the same whatever the server's settings are."""
    return " E'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


def ensure_roles(connection: Connection[Row]) -> None:
    """Roles are the whole server's: another database may have made them."""
    # Who made a role may hand it out, and is not a member by that alone.
    taken_on = "SET" if connection.info.server_version >= 160_000 else "MEMBER"
    mine: dict[str, bool] = dict(
        connection.execute(
            "SELECT rolname::text, pg_has_role(oid, $1) FROM pg_roles WHERE rolname = ANY($2)",
            (taken_on, [APPLICATION, OPERATOR]),
        ).fetchall()
    )
    try:
        for role in (APPLICATION, OPERATOR):
            if role not in mine:
                _execute_ignoring(connection, f"CREATE ROLE {role} NOLOGIN", errors.DuplicateObject)
            if not mine.get(role):
                _execute_ignoring(connection, f"GRANT {role} TO CURRENT_USER", errors.InternalError)
    except errors.InsufficientPrivilege as error:
        raise ConfigError(
            f"this database user may not take on roles: let an administrator run "
            f"'CREATE ROLE {APPLICATION} NOLOGIN; CREATE ROLE {OPERATOR} NOLOGIN; "
            f"GRANT {APPLICATION}, {OPERATOR} TO' the user of this address"
        ) from error


def _execute_ignoring(connection: Connection[Row], statement: str, done: type[Exception]) -> None:
    """Unless this error says that it is done: another server may be at it at this moment."""
    try:
        with connection.transaction():
            connection.execute(statement.encode())
    except (done, errors.UniqueViolation):
        pass


def disable_policies(connection: Connection[Row], schema: str) -> None:
    """Let whoever owns the tables change every row, until the walls are raised again."""
    for table in _tables(connection, schema):
        connection.execute(f"ALTER TABLE {table} NO FORCE ROW LEVEL SECURITY".encode())


def enable_policies(connection: Connection[Row], schema: str) -> None:
    """Policies and rights for every table there is, in the transaction that makes them."""
    for statement in policy_statements(_tables(connection, schema), schema):
        connection.execute(statement.encode())


def policy_statements(tables: Iterable[str], schema: str) -> Iterator[str]:
    """What raises the walls of these tables."""
    for table in tables:
        condition = _POLICIES.get(table, _OWN_ROWS)
        yield f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY"
        yield f"ALTER TABLE {table} FORCE ROW LEVEL SECURITY"
        yield f"DROP POLICY IF EXISTS own ON {table}"
        yield f"CREATE POLICY own ON {table} TO {APPLICATION} USING ({condition})"
        if table == "log":
            # What is unique or ordered in a whole space can be asked of it, and only asked.
            yield f"DROP POLICY IF EXISTS across ON {table}"
            yield (
                f"CREATE POLICY across ON {table} FOR SELECT TO {APPLICATION} "
                f"USING ({_WHOLE_SPACE})"
            )
        yield f"DROP POLICY IF EXISTS operator ON {table}"
        yield f"CREATE POLICY operator ON {table} TO {OPERATOR} USING (true)"
        yield f"GRANT SELECT, INSERT, UPDATE, DELETE ON {table} TO {APPLICATION}, {OPERATOR}"
    named = sql.Identifier(schema).as_string(None)
    yield f"GRANT USAGE ON SCHEMA {named} TO {APPLICATION}, {OPERATOR}"
    yield f"GRANT ALL ON ALL SEQUENCES IN SCHEMA {named} TO {APPLICATION}, {OPERATOR}"


def grant_schema_usage(connection: Connection[Row], named: str) -> None:
    """Let both roles use what another schema holds; often everybody may, and only its owner can."""
    _execute_ignoring(
        connection,
        f"GRANT USAGE ON SCHEMA {named} TO {APPLICATION}, {OPERATOR}",
        errors.InsufficientPrivilege,
    )


def _tables(connection: Connection[Row], schema: str) -> list[str]:
    found = connection.execute(
        "SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
        "WHERE n.nspname = $1 AND c.relkind IN ('r', 'p') AND NOT c.relispartition "
        "ORDER BY c.relname",
        (schema,),
    ).fetchall()
    return [row[0] for row in found]
