"""Row-level security in PostgreSQL, forced on every table: an owner sees only its own rows.

A transaction switches to a role that owns no table, and sets with ``SET LOCAL`` whose rows it may
see. A statement that lacks its condition then still finds no rows of other owners. The policies'
conditions on space and owner are index conditions, so that they cost nothing per row, and have no
subquery, so that Citus can distribute them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from psycopg import Connection, errors, sql

from reverie.errors import ConfigError
from reverie.protocols import Owner, Row

# The role that sees the rows of one owner, and the role that sees all rows.
APPLICATION, OPERATOR = "reverie_app", "reverie_operator"

# The setting reverie.owner is "space,owner", or "space,owner,*" to read the whole space's log.
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
    """The statement that lets the space of this name be looked up."""
    return f"SET LOCAL reverie.space_name ={_quoted(space)}"


def set_user_name(user: str) -> str:
    """The statement that lets the user of this name be looked up."""
    return f"SET LOCAL reverie.user_name ={_quoted(user)}"


def set_owner(owner: Owner, *, across: bool = False) -> str:
    """The statement that makes an owner's rows visible; ``across``: the space's log as well."""
    whole = ",*" if across else ""
    return f"SET LOCAL reverie.owner = '{int(owner.space)},{int(owner.number)}{whole}'"


def _quoted(text: str) -> str:
    """A string literal that does not depend on the server's settings."""
    return " E'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


def ensure_roles(connection: Connection[Row]) -> None:
    """Create both roles and grant them to this user. Roles are shared by all databases."""
    # The creator of a role may grant it, but is not a member of it by that alone.
    privilege = "SET" if connection.info.server_version >= 160_000 else "MEMBER"
    memberships: dict[str, bool] = dict(
        connection.execute(
            "SELECT rolname::text, pg_has_role(oid, $1) FROM pg_roles WHERE rolname = ANY($2)",
            (privilege, [APPLICATION, OPERATOR]),
        ).fetchall()
    )
    try:
        for role in (APPLICATION, OPERATOR):
            if role not in memberships:
                _execute_ignoring(connection, f"CREATE ROLE {role} NOLOGIN", errors.DuplicateObject)
            if not memberships.get(role):
                _execute_ignoring(connection, f"GRANT {role} TO CURRENT_USER", errors.InternalError)
    except errors.InsufficientPrivilege as error:
        raise ConfigError(
            f"this database user may not create or use roles: let an administrator run "
            f"'CREATE ROLE {APPLICATION} NOLOGIN; CREATE ROLE {OPERATOR} NOLOGIN; "
            f"GRANT {APPLICATION}, {OPERATOR} TO' the user of this address"
        ) from error


def _execute_ignoring(connection: Connection[Row], statement: str, done: type[Exception]) -> None:
    """Execute a statement; the error ``done`` means that another server did it already."""
    try:
        with connection.transaction():
            connection.execute(statement.encode())
    except (done, errors.UniqueViolation):
        pass


def disable_policies(connection: Connection[Row], schema: str) -> None:
    """Let the owner of the tables change every row, until the policies are enabled again."""
    for table in _tables(connection, schema):
        connection.execute(f"ALTER TABLE {table} NO FORCE ROW LEVEL SECURITY".encode())


def enable_policies(connection: Connection[Row], schema: str) -> None:
    """Create the policies and rights of every table, in the transaction that creates the tables."""
    for statement in policy_statements(_tables(connection, schema), schema):
        connection.execute(statement.encode())


def policy_statements(tables: Iterable[str], schema: str) -> Iterator[str]:
    """The statements that create the policies and rights of these tables."""
    for table in tables:
        condition = _POLICIES.get(table, _OWN_ROWS)
        yield f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY"
        yield f"ALTER TABLE {table} FORCE ROW LEVEL SECURITY"
        yield f"DROP POLICY IF EXISTS own ON {table}"
        yield f"CREATE POLICY own ON {table} TO {APPLICATION} USING ({condition})"
        if table == "log":
            # Ids and positions are unique in a space: its whole log can be read, but not written.
            yield f"DROP POLICY IF EXISTS across ON {table}"
            yield (
                f"CREATE POLICY across ON {table} FOR SELECT TO {APPLICATION} "
                f"USING ({_WHOLE_SPACE})"
            )
        yield f"DROP POLICY IF EXISTS operator ON {table}"
        yield f"CREATE POLICY operator ON {table} TO {OPERATOR} USING (true)"
        yield f"GRANT SELECT, INSERT, UPDATE, DELETE ON {table} TO {APPLICATION}, {OPERATOR}"
    schema_name = sql.Identifier(schema).as_string(None)
    yield f"GRANT USAGE ON SCHEMA {schema_name} TO {APPLICATION}, {OPERATOR}"
    yield f"GRANT ALL ON ALL SEQUENCES IN SCHEMA {schema_name} TO {APPLICATION}, {OPERATOR}"


def grant_schema_usage(connection: Connection[Row], named: str) -> None:
    """Let both roles use another schema. Often everybody may, and only its owner can grant it."""
    _execute_ignoring(
        connection,
        f"GRANT USAGE ON SCHEMA {named} TO {APPLICATION}, {OPERATOR}",
        errors.InsufficientPrivilege,
    )


def _tables(connection: Connection[Row], schema: str) -> list[str]:
    rows = connection.execute(
        "SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
        "WHERE n.nspname = $1 AND c.relkind IN ('r', 'p') AND NOT c.relispartition "
        "ORDER BY c.relname",
        (schema,),
    ).fetchall()
    return [row[0] for row in rows]
