"""Keys and passwords are redacted on every way into the store."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reverie import Settings, Space, Store
from reverie.errors import InvalidInput
from reverie.testing import ScriptedModel
from tests.conftest import FakeEmbedder, Stores
from tests.contract.test_session_changes import bytes_of
from tests.crash.learner import question_of
from tests.messages import answer, propose, reply, user

# Made up for these tests; the middle of it occurs nowhere else.
MIDDLE = "Zq7Kx2Vb9Tn4Wm6Rc8Yp"
SECRET = f"ghp_{MIDDLE}3Ld5Hf1Gs0Jk7Mn2"
MARK = "[redacted: github token]"
WITH_SECRET = f"The deploy key is {SECRET}, keep it"
KEPT = f"The deploy key is {MARK}, keep it"
OURS = "rv_Ab3dE6gH_" + "q7Zx" * 10 + "abc"


def held(store: Store) -> str:
    """All that a store holds, in small letters."""
    return bytes_of(store).decode("utf-8", "replace").lower()


def call(arguments: str) -> dict[str, Any]:
    function = {"name": "login", "arguments": arguments}
    return reply(None, tool_calls=[{"id": "c1", "type": "function", "function": function}])


def revise(space: Space, path: Path) -> None:
    memory = space.remember("nothing yet")
    space.revise(
        memory.id, WITH_SECRET, subject=SECRET, tags=[SECRET], category=SECRET, reason=WITH_SECRET
    )


def remember_file(space: Space, path: Path) -> None:
    (path / "notes.md").write_text(WITH_SECRET)
    space.remember_file(path / "notes.md")


def messages(space: Space, path: Path) -> None:
    session = space.session("s")
    session.append(user(WITH_SECRET))
    session.append(user([{"type": "text", "text": WITH_SECRET}]))
    session.append_many([call(json.dumps({"token": SECRET})), answer("c1", WITH_SECRET)])
    nested = {"type": "tool_use", "id": "t", "name": "x", "input": {"deep": [{"password": SECRET}]}}
    session.append(reply([nested]))


def imported(space: Space, path: Path) -> None:
    other = {"content": WITH_SECRET, "subject": SECRET, "tags": [SECRET], "source": WITH_SECRET}
    body = {"message": user(WITH_SECRET), "at": 1}
    event = {
        "reverie": 1,
        "op": "append",
        "session": "i",
        "sequence": 1,
        "uuid": "00000000-0000-4000-8000-000000000001",
        "recorded_at": 1,
        "trust": "person",
        "reason": WITH_SECRET,
        "body": body,
    }
    report = space.import_records([other, event])
    assert (report.added, report.skipped) == (2, ())


def beside(space: Space, path: Path) -> None:
    session = space.session("b")
    session.append(user("hello"))
    session.scratchpad.write([WITH_SECRET])
    session.write_summary(WITH_SECRET, upper=1, expected_epoch=0)
    session.hide(WITH_SECRET)


def proposals(space: Space, path: Path) -> None:
    space.session("s").append(user("hello"))
    one, other = propose(space, WITH_SECRET, subject=SECRET), propose(space, f"And {WITH_SECRET}")
    assert space.accept(one).content == KEPT
    space.reject(other, reason=WITH_SECRET)


def follow(space: Space, path: Path) -> None:
    space.follow([user(WITH_SECRET), reply(f"I keep {SECRET}")])


PATHS: list[Callable[[Space, Path], Any]] = [
    lambda space, _: space.remember(
        WITH_SECRET, subject=SECRET, tags=[SECRET], source=WITH_SECRET, category=SECRET
    ),
    lambda space, _: space.session("s").remember(WITH_SECRET),
    lambda space, _: space.forget(space.remember("gone").id, reason=WITH_SECRET),
    lambda space, _: space.forget_source(WITH_SECRET, reason=WITH_SECRET),
    lambda space, _: space.recall(WITH_SECRET),
    revise,
    remember_file,
    messages,
    imported,
    beside,
    proposals,
    follow,
]


@pytest.mark.parametrize("write", PATHS)
def test_every_write_redacts_secrets(
    write: Callable[[Space, Path], Any],
    stores: Stores,
    tmp_path_factory: pytest.TempPathFactory,
    caplog: pytest.LogCaptureFixture,
) -> None:
    embedder = FakeEmbedder()
    store = stores.open(embedder=embedder)
    with caplog.at_level(logging.DEBUG):
        write(store.space("ana"), tmp_path_factory.mktemp("files"))
    store.vacuum()
    assert MIDDLE.lower() not in held(store)
    assert not any(MIDDLE in text for text in (*embedder.texts, *embedder.queries))
    assert MIDDLE not in caplog.text


@pytest.mark.parametrize(
    "ask",
    [
        lambda space: space.recall(WITH_SECRET),
        lambda space: space.recall(WITH_SECRET, as_of=1),
        lambda space: space.context(WITH_SECRET),
        lambda space: space.session("s").recall(WITH_SECRET),
        lambda space: space.session("s").context(WITH_SECRET),
        lambda space: space.session("s").prompt_additions(WITH_SECRET),
    ],
)
@pytest.mark.parametrize("remote", [False, True])
def test_query_sent_to_the_embedder_has_no_secret(
    ask: Callable[[Space], Any], remote: bool, stores: Stores
) -> None:
    embedder = FakeEmbedder(remote=remote)
    space = stores.open(embedder=embedder).space("ana")
    space.remember("The deploy key is in the safe")
    ask(space)
    assert not any(MIDDLE in text for text in (*embedder.texts, *embedder.queries))
    assert remote or embedder.queries


def test_model_output_is_redacted(stores: Stores) -> None:
    def script(request: dict[str, Any]) -> Any:
        which, _ = question_of(request)
        if which == "summarise":
            return {"summary": WITH_SECRET}
        fact = {"content": WITH_SECRET, "category": "general", "subject": None}
        return {"facts": [fact]} if which == "extract" else {"decisions": []}

    with ScriptedModel(script) as model:
        settings = {name: getattr(model.settings(), name) for name in ("model", "model_base_url")}
        store = stores.open(model_api_key="k", context_tokens=100, **settings)
        session = store.space("ana").session("s")
        session.append_many(
            [user(f"The deploy key number {n} is kept in a drawer") for n in range(9)]
        )
        store.run_pending_jobs()
    assert session.summary().text == KEPT
    assert {memory.content for memory in store.space("ana").memories()} == {KEPT}
    assert MIDDLE.lower() not in held(store)


def test_resent_history_with_a_redacted_secret_is_recognized(space: Space) -> None:
    history = [user(WITH_SECRET), reply(f"Noted: {SECRET}")]
    session = space.follow(history)
    again = space.follow([*history, user("And now?")])
    assert again.id == session.id
    assert [event.text for event in again.events()] == [KEPT, f"Noted: {MARK}", "And now?"]


def test_repeated_write_with_a_key_and_a_secret_is_the_same_write(space: Space) -> None:
    first = space.remember(WITH_SECRET, key="k1")
    assert space.remember(WITH_SECRET, key="k1") == first
    session = space.session("s")
    assert session.append(user(WITH_SECRET), key="k2") == session.append(
        user(WITH_SECRET), key="k2"
    )


def test_redacted_memory_is_found_by_its_other_words(space: Space) -> None:
    space.remember(WITH_SECRET)
    assert [hit.text for hit in space.recall("deploy key")] == [KEPT]
    assert [hit.text for hit in space.recall(WITH_SECRET)] == [KEPT]


@pytest.mark.parametrize("write", [each for each in PATHS if each in {revise, messages, follow}])
def test_blocked_secret_is_an_error_that_does_not_contain_it(
    write: Callable[[Space, Path], Any], stores: Stores, tmp_path: Path
) -> None:
    store = stores.open(secrets="block")
    with pytest.raises(InvalidInput, match="github token") as caught:
        write(store.space("ana"), tmp_path)
    assert MIDDLE not in str(caught.value)
    assert MIDDLE.lower() not in held(store)


def test_blocked_secret_in_a_reply_does_not_end_the_conversation(stores: Stores) -> None:
    store = stores.open(secrets="block")
    space = store.space("ana")
    history = [user("How does a token look?"), reply(f"Like {SECRET}")]
    session = space.follow(history)
    history.append(user("Thank you"))
    assert space.follow(history).id == session.id
    session.append(reply(f"Again: {SECRET}"))
    with pytest.raises(InvalidInput, match="github token"):
        space.follow([*history, reply(f"Again: {SECRET}"), user(WITH_SECRET)])
    texts = [event.text for event in space.session(session.id).events()]
    assert texts == [history[0]["content"], f"Like {MARK}", "Thank you", f"Again: {MARK}"]
    assert MIDDLE.lower() not in held(store)


def test_history_stored_before_secrets_were_blocked_can_be_resent(stores: Stores) -> None:
    store = stores.open("same")
    session = store.space("ana").follow([user(WITH_SECRET), reply("Noted")])
    store.close()
    space = stores.open("same", secrets="block").space("ana")
    again = space.follow([user(WITH_SECRET), reply("Noted"), user("And now?")])
    assert again.id == session.id
    assert [event.text for event in again.events()] == [KEPT, "Noted", "And now?"]


def test_import_skips_a_record_with_a_blocked_secret(stores: Stores) -> None:
    space = stores.open(secrets="block").space("ana")
    report = space.import_records([{"content": WITH_SECRET}, {"content": "harmless"}])
    assert report.added == 1
    assert "github token" in report.skipped[0] and MIDDLE not in report.skipped[0]


def test_secrets_policy_warn_stores_the_text_with_a_warning(
    stores: Stores, caplog: pytest.LogCaptureFixture
) -> None:
    space = stores.open(secrets="warn").space("ana")
    with caplog.at_level(logging.WARNING, "reverie"):
        assert space.remember(WITH_SECRET).content == WITH_SECRET
    assert len(caplog.records) == 1
    assert "github token" in caplog.text and MIDDLE not in caplog.text


@pytest.mark.parametrize("policy", ["redact", "warn", "off"])
def test_own_api_keys_are_redacted_under_every_policy(policy: str, stores: Stores) -> None:
    key = "quite-ordinary-words"
    store = stores.open(secrets=policy, model="openai:m", model_api_key=key)
    space = store.space("ana")
    space.remember(f"The model's key is {key} and the token {OURS}")
    space.session("s").append(user({"deep": [f"{key} {OURS}"]}["deep"][0]))
    assert key not in held(store)
    assert OURS.lower() not in held(store)


def test_metadata_keys_that_are_secrets_stay_two_entries(store: Store, space: Space) -> None:
    keys = {SECRET: "of ana", f"{SECRET[:-1]}4": "of bo", MARK: "redacted before", "team": "web"}
    memory = space.remember("the deploy keys", metadata=keys)
    assert memory.metadata == {
        f"{MARK} 3": "of bo",
        f"{MARK} 2": "of ana",
        MARK: "redacted before",
        "team": "web",
    }
    assert space.get(memory.id).metadata == memory.metadata
    again = space.remember("the deploy keys", metadata=dict(reversed(keys.items())))
    assert (again.id, again.metadata) == (memory.id, memory.metadata)
    assert space.revise(memory.id, metadata=memory.metadata).metadata == memory.metadata
    assert MIDDLE.lower() not in held(store)


def test_message_keys_that_are_secrets_stay_two_entries(store: Store, space: Space) -> None:
    input = {SECRET: 1, f"{SECRET[:-1]}4": 2}
    block = {"type": "tool_use", "id": "t", "name": "x", "input": input}
    event = space.session("s").append(reply([block]))
    assert event.message["content"][0]["input"] == {MARK: 1, f"{MARK} 2": 2}


def test_secrets_policy_off_stores_secrets_unchanged(stores: Stores) -> None:
    store = stores.open(secrets="off")
    assert store.space("ana").remember(WITH_SECRET).content == WITH_SECRET
    assert MIDDLE.lower() in held(store)


def test_import_redacts_secrets_that_another_store_kept(stores: Stores) -> None:
    loose = stores.open("loose", secrets="off").space("ana")
    memory = loose.remember(WITH_SECRET, tags=[SECRET], source=WITH_SECRET)
    loose.revise(memory.id, f"{WITH_SECRET}!", reason=WITH_SECRET)
    loose.session("s").append(user(WITH_SECRET))
    store = stores.open()
    records = list(loose.export())
    assert store.space("ana").import_records(records).added == len(records)
    assert store.space("ana").get(memory.id).content == f"{KEPT}!"
    assert MIDDLE.lower() not in held(store)
    assert store.verify().ok


def test_key_in_the_environment_is_redacted_as_an_own_key(monkeypatch: pytest.MonkeyPatch) -> None:
    from reverie.write.secret_policy import redaction_from_settings

    settings = Settings(embedder_api_key_env="MY_KEY", model="m:m", model_api_key="short")
    assert redaction_from_settings(settings, {"MY_KEY": "plain words"}).own == ("plain words",)
