"""The schema in numbered steps, written once for every engine.

The space leads every key, and the owner follows wherever rows belong to one. Store-wide tables are
``meta``, ``spaces``, ``owners`` and ``due``. Every table below ``log`` except the agenda and the
recall notes is a view of the log and can be rebuilt from it.

``{clustered}`` stands for what makes SQLite store a table in the order of its key.
"""

from __future__ import annotations

from typing import NamedTuple

STEPS: tuple[tuple[str, ...], ...] = (
    (
        "CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) {clustered}",
        "CREATE TABLE spaces (space BIGINT PRIMARY KEY, name TEXT NOT NULL UNIQUE) {clustered}",
        # The shared owner has number 0 and the empty name, which no user can have.
        """CREATE TABLE owners (
            space BIGINT NOT NULL, owner BIGINT NOT NULL, name TEXT NOT NULL,
            PRIMARY KEY (space, owner), UNIQUE (space, name)) {clustered}""",
        """CREATE TABLE counters (
            space BIGINT PRIMARY KEY, position BIGINT NOT NULL, recorded_at BIGINT NOT NULL,
            job BIGINT NOT NULL) {clustered}""",
        # body is the whole state a version has, as JSON; NULL once it was erased.
        """CREATE TABLE log (
            space BIGINT NOT NULL, position BIGINT NOT NULL, owner BIGINT NOT NULL,
            op TEXT NOT NULL, recorded_at BIGINT NOT NULL, schema BIGINT NOT NULL,
            actor TEXT, trust TEXT NOT NULL, reason TEXT,
            origin_session TEXT, origin_sequence BIGINT,
            key TEXT, request TEXT,
            memory TEXT, version BIGINT, uuid TEXT,
            session TEXT, sequence BIGINT,
            body TEXT,
            PRIMARY KEY (space, position),
            FOREIGN KEY (space, owner) REFERENCES owners (space, owner)) {clustered}""",
        # One index serves history and keeps memory ids unique in their space.
        """CREATE UNIQUE INDEX log_memory ON log (space, memory, version)
            WHERE memory IS NOT NULL""",
        "CREATE UNIQUE INDEX log_key ON log (space, owner, key) WHERE key IS NOT NULL",
        # born is the position of a memory's first version; position is that of the current one.
        """CREATE TABLE memories (
            space BIGINT NOT NULL, owner BIGINT NOT NULL, born BIGINT NOT NULL,
            memory TEXT NOT NULL, position BIGINT NOT NULL, version BIGINT NOT NULL,
            kind TEXT NOT NULL, category TEXT NOT NULL, subject_key TEXT, session TEXT,
            pinned BIGINT NOT NULL, at BIGINT NOT NULL, expires_at BIGINT, forgotten_at BIGINT,
            first_passage BIGINT NOT NULL, passages BIGINT NOT NULL,
            PRIMARY KEY (space, owner, born),
            FOREIGN KEY (space, owner) REFERENCES owners (space, owner)) {clustered}""",
        """CREATE INDEX memories_subject ON memories (space, owner, category, subject_key)
            WHERE subject_key IS NOT NULL AND forgotten_at IS NULL""",
        # The memories that a cap on their number forgets first.
        """CREATE INDEX memories_oldest ON memories (space, owner, kind, born)
            WHERE forgotten_at IS NULL AND pinned = 0""",
        """CREATE TABLE tags (
            space BIGINT NOT NULL, owner BIGINT NOT NULL, tag TEXT NOT NULL, born BIGINT NOT NULL,
            PRIMARY KEY (space, owner, tag, born)) {clustered}""",
        """CREATE TABLE documents (
            space BIGINT NOT NULL, owner BIGINT NOT NULL, source TEXT NOT NULL,
            born BIGINT NOT NULL, hash TEXT NOT NULL,
            PRIMARY KEY (space, owner, source)) {clustered}""",
        """CREATE TABLE passages (
            space BIGINT NOT NULL, owner BIGINT NOT NULL, passage BIGINT NOT NULL,
            born BIGINT NOT NULL, start BIGINT NOT NULL, length BIGINT NOT NULL,
            PRIMARY KEY (space, owner, passage)) {clustered}""",
        """CREATE TABLE postings (
            space BIGINT NOT NULL, owner BIGINT NOT NULL, term TEXT NOT NULL,
            passage BIGINT NOT NULL, tf BIGINT NOT NULL, len BIGINT NOT NULL,
            PRIMARY KEY (space, owner, term, passage)) {clustered}""",
        # epoch changes when passages are renumbered; touches counts the rows of touched.
        """CREATE TABLE statistics (
            space BIGINT NOT NULL, owner BIGINT NOT NULL, epoch BIGINT NOT NULL,
            next_passage BIGINT NOT NULL, passages BIGINT NOT NULL, terms BIGINT NOT NULL,
            touches BIGINT NOT NULL, facts BIGINT NOT NULL, notes BIGINT NOT NULL,
            PRIMARY KEY (space, owner)) {clustered}""",
        # Vectors that changed after they were first written: other processes update their caches.
        """CREATE TABLE touched (
            space BIGINT NOT NULL, owner BIGINT NOT NULL, touch BIGINT NOT NULL,
            passage BIGINT NOT NULL,
            PRIMARY KEY (space, owner, touch)) {clustered}""",
        # Passages that have no vector yet.
        """CREATE TABLE unembedded (
            space BIGINT NOT NULL, owner BIGINT NOT NULL, passage BIGINT NOT NULL,
            PRIMARY KEY (space, owner, passage)) {clustered}""",
        """CREATE TABLE recalls (
            space BIGINT NOT NULL, owner BIGINT NOT NULL, recall BIGINT NOT NULL,
            at BIGINT NOT NULL, query TEXT NOT NULL, session TEXT, sequence BIGINT,
            hits TEXT NOT NULL,
            PRIMARY KEY (space, owner, recall)) {clustered}""",
        """CREATE TABLE jobs (
            space BIGINT NOT NULL, job BIGINT NOT NULL, owner BIGINT NOT NULL,
            kind TEXT NOT NULL, lane TEXT, state TEXT NOT NULL, due_at BIGINT NOT NULL,
            attempts BIGINT NOT NULL, token TEXT, payload TEXT NOT NULL, error TEXT,
            created_at BIGINT NOT NULL,
            PRIMARY KEY (space, job)) {clustered}""",
        "CREATE INDEX jobs_due ON jobs (space, state, due_at)",
        "CREATE TABLE due (space BIGINT PRIMARY KEY, at BIGINT NOT NULL) {clustered}",
        "CREATE INDEX due_at ON due (at)",
    ),
    (
        # opened is the position of the first event, position that of the last, titled that of the
        # user's first one. chain is a hash of all messages; unsummed is the size in bytes of the
        # messages after the summary. A fork continues from an event of another session. ended: the
        # session was erased; if it is used again, it starts without a past.
        """CREATE TABLE sessions (
            space BIGINT NOT NULL, owner BIGINT NOT NULL, session TEXT NOT NULL,
            opened BIGINT NOT NULL, position BIGINT NOT NULL, last_sequence BIGINT NOT NULL,
            events BIGINT NOT NULL, updated_at BIGINT NOT NULL, hidden_at BIGINT,
            titled BIGINT, forked_session TEXT, forked_sequence BIGINT, chain TEXT NOT NULL,
            unsummed BIGINT NOT NULL, ended BIGINT NOT NULL,
            PRIMARY KEY (space, owner, session),
            FOREIGN KEY (space, owner) REFERENCES owners (space, owner)) {clustered}""",
        "CREATE INDEX sessions_recent ON sessions (space, owner, position)",
        """CREATE INDEX sessions_forks ON sessions (space, owner, forked_session)
            WHERE forked_session IS NOT NULL""",
        """CREATE TABLE events (
            space BIGINT NOT NULL, owner BIGINT NOT NULL, position BIGINT NOT NULL,
            session TEXT NOT NULL, sequence BIGINT NOT NULL, role TEXT NOT NULL,
            at BIGINT NOT NULL, size BIGINT NOT NULL, chain TEXT NOT NULL,
            first_passage BIGINT NOT NULL, passages BIGINT NOT NULL,
            PRIMARY KEY (space, owner, position)) {clustered}""",
        "CREATE UNIQUE INDEX events_session ON events (space, owner, session, sequence)",
        "CREATE INDEX events_chain ON events (space, owner, chain)",
        # What a session has beside its events. frozen is the position of its frozen profile.
        """CREATE TABLE session_state (
            space BIGINT NOT NULL, owner BIGINT NOT NULL, session TEXT NOT NULL, frozen BIGINT,
            epoch BIGINT NOT NULL, upper BIGINT NOT NULL, summary TEXT NOT NULL,
            scratchpad TEXT, scratched_at BIGINT,
            PRIMARY KEY (space, owner, session)) {clustered}""",
        """CREATE TABLE proposals (
            space BIGINT NOT NULL, owner BIGINT NOT NULL, proposal TEXT NOT NULL,
            position BIGINT NOT NULL, answer TEXT, memory TEXT,
            PRIMARY KEY (space, owner, proposal)) {clustered}""",
        "CREATE INDEX log_session ON log (space, owner, session, sequence) "
        "WHERE session IS NOT NULL",
        "CREATE INDEX jobs_lane ON jobs (space, owner, lane, job) WHERE lane IS NOT NULL",
        # The memories that a profile shows first.
        """CREATE INDEX memories_pinned ON memories (space, owner, born)
            WHERE forgotten_at IS NULL AND pinned = 1""",
        # The number of memories that only one session may see.
        "ALTER TABLE statistics ADD COLUMN private BIGINT NOT NULL DEFAULT 0",
    ),
    (
        # Memories that changed: a frozen profile looks their earlier versions up in the log.
        """CREATE INDEX IF NOT EXISTS memories_changed ON memories (space, owner, position)
            WHERE position > born""",
        # Memories that only one session may see.
        """CREATE INDEX memories_private ON memories (space, owner, born)
            WHERE session IS NOT NULL""",
        # Whether a passage contains a term tells more than how often. len is the length for
        # scoring, and so is terms in passages and events.
        "DROP TABLE postings",
        """CREATE TABLE postings (
            space BIGINT NOT NULL, owner BIGINT NOT NULL, term TEXT NOT NULL,
            passage BIGINT NOT NULL, len BIGINT NOT NULL,
            PRIMARY KEY (space, owner, term, passage)) {clustered}""",
        "ALTER TABLE passages ADD COLUMN terms BIGINT NOT NULL DEFAULT 0",
        "ALTER TABLE statistics DROP COLUMN terms",
        # Clustered by session, so that the events around an event are read together.
        "DROP TABLE events",
        """CREATE TABLE events (
            space BIGINT NOT NULL, owner BIGINT NOT NULL, position BIGINT NOT NULL,
            session TEXT NOT NULL, sequence BIGINT NOT NULL, role TEXT NOT NULL, speaker TEXT,
            at BIGINT NOT NULL, size BIGINT NOT NULL, chain TEXT NOT NULL,
            first_passage BIGINT NOT NULL, passages BIGINT NOT NULL, terms BIGINT NOT NULL,
            PRIMARY KEY (space, owner, session, sequence)) {clustered}""",
        "CREATE UNIQUE INDEX events_position ON events (space, owner, position)",
        "CREATE INDEX events_chain ON events (space, owner, chain)",
        # The event that a memory came from, without reading the whole entry.
        """CREATE INDEX log_origin ON log (space, memory, version, origin_session, origin_sequence)
            WHERE origin_session IS NOT NULL AND memory IS NOT NULL""",
    ),
    (
        # The number of the newest owner: a transaction that creates one cannot see the others.
        "ALTER TABLE counters ADD COLUMN owner BIGINT NOT NULL DEFAULT 0",
        """UPDATE counters SET owner = COALESCE(
            (SELECT MAX(o.owner) FROM owners o WHERE o.space = counters.space), 0)""",
        # Workers claim jobs within one owner, as every other transaction is within one.
        "DROP TABLE due",
        """CREATE TABLE due (
            space BIGINT NOT NULL, owner BIGINT NOT NULL, at BIGINT NOT NULL,
            PRIMARY KEY (space, owner)) {clustered}""",
        "CREATE INDEX due_at ON due (at)",
        """INSERT INTO due (space, owner, at) SELECT space, owner, MIN(due_at) FROM jobs
            WHERE state <> 'parked' GROUP BY space, owner""",
        "DROP INDEX jobs_due",
        "CREATE INDEX jobs_due ON jobs (space, owner, state, due_at)",
    ),
    (
        # Seals, by which rows prove that they are unchanged (engine/seals.py). Existing rows are
        # sealed in the same transaction, by seals.seal_store.
        "ALTER TABLE log ADD COLUMN salt TEXT",
        "ALTER TABLE log ADD COLUMN digest TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE log ADD COLUMN chain TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE log ADD COLUMN seal TEXT NOT NULL DEFAULT ''",
        # The chain of the newest entry: by it a log whose end was cut off is detected.
        "ALTER TABLE counters ADD COLUMN chain TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE counters ADD COLUMN seal TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE spaces ADD COLUMN seal TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE owners ADD COLUMN seal TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE session_state ADD COLUMN seal TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE recalls ADD COLUMN seal TEXT NOT NULL DEFAULT ''",
    ),
    (
        # The profile: the newest facts of a category, and which memories were recalled often when
        # the profile of a session was frozen (a JSON list of ids).
        """CREATE INDEX memories_category ON memories (space, owner, category, born)
            WHERE forgotten_at IS NULL AND pinned = 0 AND kind = 'fact'""",
        "ALTER TABLE session_state ADD COLUMN often TEXT",
        # What an event does (text/speech_acts.py): questions and fillers are not recalled. Existing
        # rows get theirs when the index is made again.
        "ALTER TABLE events ADD COLUMN act BIGINT NOT NULL DEFAULT 0",
        # The scalars of the metadata of memories, for filters (text/metadata.py). value sorts as
        # the scalar does; text is the whole of one that is too long for a key.
        """CREATE TABLE metadata (
            space BIGINT NOT NULL, owner BIGINT NOT NULL, name TEXT NOT NULL, value TEXT NOT NULL,
            born BIGINT NOT NULL, in_list BIGINT NOT NULL, text TEXT,
            PRIMARY KEY (space, owner, name, value, born)) {clustered}""",
        # By its hash the memory of a text that is remembered again is found. The index is rebuilt
        # after this step, which fills the column.
        "ALTER TABLE memories ADD COLUMN content_hash BIGINT NOT NULL DEFAULT 0",
        """CREATE INDEX memories_content ON memories (space, owner, content_hash)
            WHERE forgotten_at IS NULL""",
        # From when to when it holds.
        "ALTER TABLE memories ADD COLUMN valid_from BIGINT",
        "ALTER TABLE memories ADD COLUMN valid_to BIGINT",
        # A subject is looked up in all categories as well.
        "DROP INDEX memories_subject",
        """CREATE INDEX memories_subject ON memories (space, owner, subject_key, category)
            WHERE subject_key IS NOT NULL AND forgotten_at IS NULL""",
        # yields: while the job waits for a retry, later jobs of its lane run. overtaken: a later
        # job of its kind and owner was done before it (1), also while it waited for a retry (2), or
        # may have been. calls: the model calls made for it.
        "ALTER TABLE jobs ADD COLUMN yields BIGINT NOT NULL DEFAULT 0",
        "ALTER TABLE jobs ADD COLUMN overtaken BIGINT NOT NULL DEFAULT 0",
        "ALTER TABLE jobs ADD COLUMN calls BIGINT NOT NULL DEFAULT 0",
        "UPDATE jobs SET yields = 1, overtaken = 2 WHERE kind = 'learn'",
        # actor: who remembered a memory, '' for nobody in particular. A cap on the number of
        # memories forgets only the oldest of the actor that writes.
        "ALTER TABLE memories ADD COLUMN actor TEXT NOT NULL DEFAULT ''",
        """UPDATE memories SET actor = COALESCE((SELECT l.actor FROM log l
            WHERE l.space = memories.space AND l.position = memories.born), '')""",
        """CREATE INDEX memories_by_actor ON memories (space, owner, kind, actor, pinned, born)
            WHERE forgotten_at IS NULL""",
        # Whether a session has memories of its own is asked for every session without a user.
        "DROP INDEX memories_private",
        """CREATE INDEX memories_private ON memories (space, owner, session)
            WHERE session IS NOT NULL""",
    ),
)

SCHEMA_VERSION = len(STEPS)
# The number of the step that adds seals.
SEAL_STEP = 5

# A key of meta while a migration into this store is under way.
MIGRATION_KEY = "migration"
# Keys of meta that belong to one engine and are not copied.
_ENGINE_KEYS = ("schema", MIGRATION_KEY)
# A key of meta while a vault's log is replayed into this store: its entries need their positions.
REPLAY_KEY = "untold"

# The tables that are rebuilt from the log.
DERIVED_TABLES = (
    "memories",
    "tags",
    "metadata",
    "documents",
    "sessions",
    "events",
    "proposals",
    "passages",
    "postings",
    "touched",
    "unembedded",
)


class Table(NamedTuple):
    """A table as it is now: the columns of its key, and the others."""

    name: str
    key: tuple[str, ...]
    others: tuple[str, ...]

    @property
    def columns(self) -> str:
        return ", ".join(self.key + self.others)

    @property
    def copy_condition(self) -> str:
        """The SQL condition on the rows that are copied."""
        return f"key NOT IN {_ENGINE_KEYS}" if self.name == "meta" else "1 = 1"


def _table(name: str, key: str, others: str = "") -> Table:
    return Table(name, tuple(key.split()), tuple(others.split()))


# In the order of their foreign keys: a row refers only to tables before its own.
TABLES = (
    _table("meta", "key", "value"),
    _table("spaces", "space", "name seal"),
    _table("owners", "space owner", "name seal"),
    _table("counters", "space", "position recorded_at job owner chain seal"),
    _table(
        "log",
        "space position",
        "owner op recorded_at schema actor trust reason origin_session origin_sequence key request "
        "memory version uuid session sequence body salt digest chain seal",
    ),
    _table(
        "statistics",
        "space owner",
        "epoch next_passage passages touches facts notes private",
    ),
    _table(
        "memories",
        "space owner born",
        "memory position version kind category subject_key session pinned at expires_at "
        "forgotten_at first_passage passages content_hash valid_from valid_to actor",
    ),
    _table("tags", "space owner tag born"),
    _table("metadata", "space owner name value born", "in_list text"),
    _table("documents", "space owner source", "born hash"),
    _table(
        "sessions",
        "space owner session",
        "opened position last_sequence events updated_at hidden_at titled forked_session "
        "forked_sequence chain unsummed ended",
    ),
    _table(
        "events",
        "space owner session sequence",
        "position role speaker at size chain first_passage passages terms act",
    ),
    _table(
        "session_state",
        "space owner session",
        "frozen epoch upper summary scratchpad scratched_at often seal",
    ),
    _table("proposals", "space owner proposal", "position answer memory"),
    _table("passages", "space owner passage", "born start length terms"),
    _table("postings", "space owner term passage", "len"),
    _table("touched", "space owner touch", "passage"),
    _table("unembedded", "space owner passage"),
    _table("recalls", "space owner recall", "at query session sequence hits seal"),
    _table(
        "jobs",
        "space job",
        "owner kind lane state due_at attempts token payload error created_at yields overtaken "
        "calls",
    ),
    _table("due", "space owner", "at"),
)
