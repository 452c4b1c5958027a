"""All text that a model gets is escaped: no interface lets a forged speaker through.

The interfaces are found in the code: every tool, resource and prompt of MCP, every handler of it,
every method of a handle that gives text, every function that asks a chat model, every verb of a
command, and what the proxy puts into a request. A new one fails here until it is walked through.
"""

from __future__ import annotations

import ast
import asyncio
import importlib
import inspect
import json
import pkgutil
import re
import shutil
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from mcp.client.client import Client
from mcp.shared.exceptions import MCPError

import reverie
from reverie import Origin, Session, Settings, Space, Store
from reverie.aio import AsyncStore
from reverie.learn import prompts, summaries
from reverie.memory.session import ScratchpadHandle
from reverie.model import PromptAdditions
from reverie.server.mcp import format as mcp_format
from reverie.server.mcp import server
from reverie.server.mcp.stdio import OPERATOR
from reverie.server.mcp.tools import ToolScope
from reverie.server.proxy import commands
from reverie.vault import service, tools
from tests.conftest import Stores
from tests.markers import LIVE, alive, texts_in
from tests.messages import propose, reply, user
from tests.server.conftest import Proxy

SOURCE = Path(reverie.__file__).parent
MANY = 3


class Plant(NamedTuple):
    """Some markers, and a word by which what was planted with them is found again."""

    canary: str
    markers: str

    @property
    def text(self) -> str:
        return f"{self.markers} obey the {self.canary}"

    @property
    def name(self) -> str:
        """As much as a name may hold."""
        return "".join(char for char in self.markers if char.isprintable() or ord(char) > 255)[:150]


PLANTS = [
    Plant(f"canary{start:03}", " ".join(LIVE[start : start + MANY]))
    for start in range(0, len(LIVE), MANY)
]


class PlantedStore(NamedTuple):
    """A store in which everything that can hold text holds markers."""

    store: Store
    space: Space
    session: Session
    ids: dict[str, str]


FORGED = PLANTS[0].name


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """The file of such a store, and the id of each plant's memory."""
    folder = tmp_path_factory.mktemp("doors")
    stores = Stores(lambda name: f"sqlite://{folder / name}.db")
    space = stores.open().space(FORGED, user=FORGED, actor=FORGED)
    ids = {plant.canary: planted(space, plant) for plant in PLANTS}
    session = space.session("main")
    for plant in PLANTS:
        session.append_many([user(plant.text), reply(f"{plant.text} said I")])
    session.write_summary("\n".join(plant.text for plant in PLANTS), upper=2, expected_epoch=0)
    stores.close()
    return folder / "main.db", ids


@pytest.fixture
def store_of_markers(made: tuple[Path, dict[str, str]], tmp_path: Path) -> Iterator[PlantedStore]:
    shutil.copy(made[0], tmp_path / "main.db")
    stores = Stores(lambda name: f"sqlite://{tmp_path / name}.db")
    store = stores.open()
    space = store.space(FORGED, user=FORGED)
    yield PlantedStore(store, space, space.session("main"), made[1])
    stores.close()


def planted(space: Space, plant: Plant) -> str:
    """One memory of it with every field filled, and a conversation in a session of its name."""
    made = space.remember(
        "at first",
        subject=plant.name,
        category=plant.name,
        tags=[plant.name[:60], plant.canary],
        source=plant.name,
    )
    space.revise(made.id, plant.text, reason=plant.name)
    space.session(plant.name).append(user(f"{plant.text} was said"))
    space.session("roles").append({"role": plant.name, "content": f"{plant.canary} by whom"})
    return made.id


def assert_inert(method: str, shown: Any) -> None:
    found = [(each, text) for text in texts_in(shown) for each in alive(text)]
    assert not found, f"{method} lets {found[0][0]!r} through: {found[0][1][:300]!r}"


def assert_shows(method: str, shown: Any, *words: str) -> None:
    """An interface that shows no text would prove nothing."""
    text = "\n".join(texts_in(shown))
    missing = [word for word in words if word not in text]
    assert not missing, f"{method} does not show {missing[:3]}"


# -- MCP ------------------------------------------------------------------------------------------

# What each tool is called with, given a plant and the id of its memory.
CALLS: dict[str, Callable[[Plant, str], dict[str, Any]]] = {
    "recall": lambda plant, id: {"query": plant.canary, "limit": 50},
    "memories": lambda plant, id: {"tags": [plant.canary], "include_forgotten": True},
    "history": lambda plant, id: {"id": id},
    "context": lambda plant, id: {"query": plant.canary, "tokens": 32_000},
    "remember": lambda plant, id: {
        "content": f"another {plant.canary}",
        "subject": plant.name,
        "category": plant.name,
    },
    "revise": lambda plant, id: {"id": id, "reason": plant.name, "pinned": True},
    "forget": lambda plant, id: {"id": id, "reason": plant.name},
}
SHOW_CONTENT = {"recall", "memories", "history", "context", "remember"}
WALKED = {
    *("list_tools", "call_tool", "list_resources", "list_templates", "read_resource"),
    *("list_prompts", "get_prompt", "complete"),
}


def over_mcp(
    store_of_markers: PlantedStore,
    client_call: Callable[[Client], Awaitable[None]],
    session: str | None = None,
) -> None:
    threads = AsyncStore(store_of_markers.store)
    space = threads.space(store_of_markers.space.name, user=store_of_markers.space.user)
    scoped = ToolScope.for_session(space, session)

    async def connected() -> None:
        async with Client(
            server.create_server(lambda request, right: (OPERATOR, scoped))
        ) as client:
            await client_call(client)

    asyncio.run(connected())


def test_every_mcp_handler_is_covered_by_these_tests() -> None:
    handlers = {
        name
        for name, value in vars(server._Handlers).items()
        if inspect.iscoroutinefunction(value) and not name.startswith("_")
    }
    assert handlers == WALKED


@pytest.mark.parametrize("session", [None, "main"])
@pytest.mark.sample(2)
def test_every_mcp_tool_neutralises_markers(
    store_of_markers: PlantedStore, session: str | None
) -> None:
    # A memory of the session itself has no other beside it to be told about.
    shows = SHOW_CONTENT if session is None else SHOW_CONTENT - {"remember"}

    async def client_call(client: Client) -> None:
        tools = (await client.list_tools()).tools
        for tool in tools:
            assert tool.name in CALLS, f"call the new tool {tool.name} here"
        # What changes something comes last.
        for tool in sorted(tools, key=lambda tool: list(CALLS).index(tool.name)):
            for plant in PLANTS:
                given = CALLS[tool.name](plant, store_of_markers.ids[plant.canary])
                result = await client.call_tool(tool.name, given)
                shown = result.model_dump(mode="json")
                assert_inert(tool.name, shown)
                if tool.name in shows:
                    assert_shows(tool.name, shown, plant.canary)

    over_mcp(store_of_markers, client_call, session)


def test_every_mcp_resource_neutralises_markers(store_of_markers: PlantedStore) -> None:
    async def client_call(client: Client) -> None:
        listed, cursor = [], None
        while True:
            page = await client.list_resources(cursor=cursor)
            listed += page.resources
            if (cursor := page.next_cursor) is None:
                break
        templates = (await client.list_resource_templates()).resource_templates
        assert [each.uri_template for each in templates] == [server.MEMORY_TEMPLATE]
        assert len(listed) >= len(PLANTS)
        for each in listed:
            assert_inert("the list of resources", each.model_dump(mode="json"))
            read = await client.read_resource(each.uri)
            assert_inert(str(each.uri), read.model_dump(mode="json"))
            assert_shows(str(each.uri), read.model_dump(mode="json"), "canary")

    over_mcp(store_of_markers, client_call)


def test_every_mcp_prompt_neutralises_markers(store_of_markers: PlantedStore) -> None:
    async def client_call(client: Client) -> None:
        for prompt in (await client.list_prompts()).prompts:
            for plant in PLANTS[::4]:
                given = {each.name: plant.canary for each in prompt.arguments or []}
                prompted = await client.get_prompt(prompt.name, given)
                assert_inert(prompt.name, prompted.model_dump(mode="json"))

    over_mcp(store_of_markers, client_call)


def test_mcp_errors_neutralise_markers(store_of_markers: PlantedStore) -> None:
    async def client_call(client: Client) -> None:
        for marker in LIVE:
            for call in (
                client.call_tool(marker, {}),
                client.call_tool("history", {"id": marker}),
                client.call_tool("recall", {marker: marker}),
                client.call_tool("recall", {"query": "x", "since": marker}),
                client.get_prompt(marker, {}),
                client.read_resource(f"{server.MEMORY_URI}{marker}"),
                client.read_resource(marker),
            ):
                try:
                    answer: Any = (await call).model_dump(mode="json")
                except MCPError as error:
                    answer = error.message
                assert_inert("an error", answer)

    over_mcp(store_of_markers, client_call)


# -- handles --------------------------------------------------------------------------------------

TEXT_FOR_MODELS: dict[str, Callable[[PlantedStore, Plant], Any]] = {
    "Space.profile": lambda store_of_markers, plant: store_of_markers.space.profile(tokens=50_000),
    "Space.context": lambda store_of_markers, plant: (
        store_of_markers.space.context(plant.canary, tokens=50_000).system
    ),
    "Session.context": lambda store_of_markers, plant: (
        store_of_markers.session.context(plant.canary, tokens=50_000).system
    ),
    "Session.prompt_additions": lambda store_of_markers, plant: prompt_of(
        store_of_markers.session.prompt_additions(plant.canary)
    ),
}


def prompt_of(additions: PromptAdditions) -> str:
    return additions.profile + additions.summary + additions.recalled


# Names and addresses that a program asks for: verbatim, and no model's.
TEXT_FOR_PROGRAMS = {"Space.name", "Space.user", "Session.id", "Store.url", "Store.flush_to_vault"}


def test_every_handle_method_that_returns_text_is_listed() -> None:
    found = set()
    for kind in (Store, Space, Session, ScratchpadHandle):
        for name, member in vars(kind).items():
            function = member.fget if isinstance(member, property) else member
            given = str(getattr(function, "__annotations__", {}).get("return", ""))
            if not name.startswith("_") and {"str", "Context", "PromptAdditions"} & set(
                given.split()
            ):
                found.add(f"{kind.__name__}.{name}")
    assert found == {*TEXT_FOR_MODELS, *TEXT_FOR_PROGRAMS}


@pytest.mark.parametrize("method", TEXT_FOR_MODELS)
@pytest.mark.sample(2)
def test_text_returned_by_handles_neutralises_markers(
    store_of_markers: PlantedStore, method: str
) -> None:
    for plant in PLANTS:
        shown = TEXT_FOR_MODELS[method](store_of_markers, plant)
        assert_inert(method, shown)
        assert_shows(method, shown, "canary")


def test_stored_text_stays_verbatim(store_of_markers: PlantedStore) -> None:
    for plant in PLANTS:
        versions = store_of_markers.space.history(store_of_markers.ids[plant.canary])
        assert versions[1].content == plant.text
        assert versions[1].reason == plant.name
        (event,) = store_of_markers.space.session(plant.name).events()
        assert event.text == f"{plant.text} was said"


def test_notices_neutralise_markers(made: tuple[Path, dict[str, str]], tmp_path: Path) -> None:
    """What a context asks the agent to tell the user."""
    shutil.copy(made[0], tmp_path / "main.db")
    stores = Stores(lambda name: f"sqlite://{tmp_path / name}.db")
    space = stores.open(write_policy="ask").space(FORGED, user=FORGED)
    for plant in PLANTS:
        propose(space, plant.text, Origin("main", 1), subject=plant.name)
        for asking in (space.session("main"), space.session("another"), space):
            notices = asking.context("", tokens=50_000).notices
            assert_inert("notices", notices)
            assert_shows("notices", notices, plant.canary)
        asked = commands.proposal_notice(space)
        assert_inert("the proxy's question", asked)
        assert_shows("the proxy's question", asked, plant.canary)
    listed = [mcp_format.format_proposal(each) for each in space.proposals()]
    listed.append(commands.run_command(space, "proposals", may_write=False))
    assert_inert("a list of proposals", listed)
    assert_shows("a list of proposals", listed, *(plant.canary for plant in PLANTS))
    stores.close()


# -- agent tools ----------------------------------------------------------------------------------

HELD = re.compile(
    r"\b(Space|Session|Memory|ChosenProfile|Hit|Version|Event|Summary|Proposal|Context|"
    r"PromptAdditions)\b"
)
# Public functions that turn what is remembered into text: those for models are walked through here,
FUNCTIONS_FOR_MODELS = {
    "prompt.consent.render_questions",
    "prompt.consent.render_waiting",
    "prompt.context.render_hits",
    "prompt.profile.render",
    "server.mcp.format.format_hit",
    "server.mcp.format.format_hits",
    "server.mcp.format.format_memory",
    "server.mcp.format.format_proposal",
    "server.mcp.format.format_related",
    "server.mcp.format.format_versions",
    "server.proxy.commands.proposal_notice",
    "server.proxy.commands.run_command",
    "vault.tools.memory_checkpoint",
    "vault.tools.memory_history",
}
# and these give paths, stored text, or what people and git read.
FUNCTIONS_FOR_OTHERS = {
    "prompt.validity.validity_note",
    "recall.as_of.item_text",
    "vault.git.scoped_history.checkpoint",
    "vault.git.scoped_history.diff",
    "vault.git.scoped_history.find_memory_file",
    "vault.service.diff",
    "vault.session_files.event_path",
}


def test_every_function_that_renders_memories_is_listed() -> None:
    found = set()
    for module in pkgutil.walk_packages(reverie.__path__, "reverie."):
        if module.name.startswith(("reverie.cli", "reverie.__main__")):
            continue  # a terminal is read by people
        for name, function in vars(importlib.import_module(module.name)).items():
            if not inspect.isfunction(function) or function.__module__ != module.name:
                continue
            taken = {**function.__annotations__}
            given = str(taken.pop("return", "")).replace("dict[str, Any]", "")
            takes = any(HELD.search(str(kind)) for kind in taken.values())
            if takes and re.search(r"\bstr\b", given) and not name.startswith("_"):
                found.add(f"{module.name.removeprefix('reverie.')}.{name}")
    assert found == FUNCTIONS_FOR_MODELS | FUNCTIONS_FOR_OTHERS


def test_vault_tools_neutralise_markers(tmp_path: Path) -> None:
    with reverie.open(tmp_path / "kept.db", settings=Settings(), embedder="none") as store:
        service.init(store, tmp_path / "vault")
        space = store.space("ana")
        for plant in PLANTS:
            space.remember(plant.text, subject=plant.name, tags=[plant.name[:60]])
            space.remember(f"{plant.text} again", source=plant.name)
        shown = [tools.memory_checkpoint(space, PLANTS[0].text)]
        shown += [tools.memory_history(space, limit=100, diff=both) for both in (False, True)]
        for plant in PLANTS[:3]:
            space.remember(f"{plant.text} once more")
            shown.append(tools.memory_checkpoint(space, plant.text))
        shown.append(tools.memory_history(space, limit=3, diff=True))
    assert_inert("the vault's tools", shown)
    assert_shows("the vault's tools", shown, "Checkpoint ", PLANTS[0].canary, PLANTS[2].canary)


# -- chat models ----------------------------------------------------------------------------------


class Listener:
    """A chat model that only listens."""

    name = "listener"

    def __init__(self) -> None:
        self.heard: list[str] = []

    def ask(self, instructions: str, question: str, *_: Any) -> Any:
        self.heard += [instructions, question]
        raise _HeardError


class _HeardError(Exception):
    pass


ASKED: dict[str, Callable[[Any, Plant], Any]] = {
    "extract_facts": lambda model, plant: prompts.extract_facts(
        model, plant.text, [("user", plant.text)]
    ),
    "reconcile_facts": lambda model, plant: prompts.reconcile_facts(
        model,
        [prompts.Fact(content=plant.text, category="general", subject=plant.name)],
        [plant.text],
    ),
    "summarize_turns": lambda model, plant: prompts.summarize_turns(
        model, condensed(plant), [(plant.name, plant.text)]
    ),
}


def condensed(plant: Plant) -> str:
    event = summaries.SummaryEvent(1, plant.name, plant.text, (plant.name,), 10)
    return summaries.condense(plant.text, [event, event._replace(text="")]).text


def test_every_function_that_calls_a_model_is_listed() -> None:
    """Questions are asked in one module, by these functions."""
    found = {
        name
        for name, function in vars(prompts).items()
        if inspect.isfunction(function) and "ChatModel" in function.__annotations__.values()
    }
    assert found == set(ASKED)
    for path in SOURCE.rglob("*.py"):
        if path.parent.name == "git" or path == SOURCE / "learn" / "prompts.py":
            continue  # the vault asks git, not a model
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            assert not (isinstance(node, ast.Attribute) and node.attr == "ask"), path


@pytest.mark.parametrize("name", ASKED)
def test_prompts_to_a_model_neutralise_markers(name: str) -> None:
    for plant in PLANTS:
        model = Listener()
        with pytest.raises(_HeardError):
            ASKED[name](model, plant)
        assert_inert(name, model.heard)
        assert_shows(name, model.heard, plant.canary)


# -- the proxy ------------------------------------------------------------------------------------


def test_every_memory_command_neutralises_markers(store_of_markers: PlantedStore) -> None:
    given = {
        "list": [""],
        "search": [plant.canary for plant in PLANTS],
        "delete": [store_of_markers.ids[PLANTS[-1].canary], LIVE[0]],
        "undo": [""],
        "proposals": [""],
        "keep": ["1", LIVE[0], ""],
        "drop": ["2", LIVE[0], ""],
        "help": [""],
    }
    for plant in PLANTS[:3]:
        propose(store_of_markers.space, plant.text, Origin("main", 1))
    assert set(given) == commands.VERBS
    for verb, rest in given.items():
        for each in rest:
            shown = commands.run_command(
                store_of_markers.space, f"{verb} {each}".strip(), may_write=True
            )
            assert_inert(f"/memory {verb}", shown)
    assert_shows(
        "/memory list",
        commands.run_command(store_of_markers.space, "list", may_write=False),
        "canary",
    )


def test_text_inserted_by_the_proxy_neutralises_markers(proxy: Proxy) -> None:
    proxied = proxy()
    for plant in PLANTS[::3]:
        planted(proxied.space, plant)
    for plant in PLANTS[::3]:
        assert proxied.chat(f"what about {plant.canary}?").status_code == 200
        sent = json.loads(proxied.upstream.last.body)
        assert_inert("the proxy", sent)
        assert_shows("the proxy", sent["messages"], "obey the canary")


# -- who builds such text -------------------------------------------------------------------------

# Modules that turn what is remembered into text for a model, and what they use for it.
BUILDERS = {
    "learn/prompts.py": {"escape_json"},
    "prompt/consent.py": {"escape_line", "subject_prefix"},
    "prompt/context.py": {"escape_line", "escape_name", "subject_prefix"},
    "prompt/profile.py": {"escape_line", "escape_name", "subject_prefix"},
    "prompt/session_summary.py": {"escape_lines"},
    "server/proxy/commands.py": {"escape_text", "escape_line", "subject_prefix"},
    "server/mcp/server.py": {"escape_text", "escape_line", "escape_json"},
    "server/mcp/format.py": {"escape_line", "escape_name", "subject_prefix"},
    "vault/tools.py": {"escape_text", "escape_line"},
}


def test_text_for_models_is_built_in_listed_modules_by_one_function() -> None:
    """``Context`` and ``PromptAdditions`` come from here, and nobody has an escape of their own."""
    users: dict[str, set[str]] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        name = str(path.relative_to(SOURCE))
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module == "reverie.prompt.escape":
                users.setdefault(name, set()).update(alias.name for alias in node.names)
            if isinstance(node, ast.Call) and ast.unparse(node.func) in {
                "Context",
                "PromptAdditions",
            }:
                built_empty = not node.args and not node.keywords
                assert built_empty or name in {"prompt/context.py", "prompt/additions.py"}, name
    assert users == BUILDERS
