"""Keys are found anywhere in a text; what only looks like one is not redacted."""

from __future__ import annotations

import random
import time

import pytest
from bench.redaction import falsely, leaked, missed
from hypothesis import given
from hypothesis import strategies as st

from bench import lookalikes, secret_shapes
from reverie.text.secrets.detect import (
    REDACTION_MARK,
    find_secrets,
    redact_text,
    redact_values,
    remove_own_secrets,
)
from reverie.text.secrets.key_formats import KEY_FORMATS
from tests.figures import figure
from tests.tables import cases_in_one_test

CHANCE = random.Random(7)
LETTERS = "abcdefghjkmnpqrstuvwxyzABCDEFGHJKMNPQRSTUVWXYZ0123456789"


def drawn(count: int, letters: str = LETTERS) -> str:
    return "".join(CHANCE.choices(letters, k=count))


# Shapes as the services document them, put together here and not from the table of rules.
DOCUMENTED = {
    "aws access key": "AKIA" + drawn(16, "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"),
    "github token": "ghp_" + drawn(36),
    "github fine-grained": "github_pat_" + drawn(22) + "_" + drawn(59),
    "gitlab": "glpat-" + drawn(20),
    "slack bot": f"xoxb-{drawn(12, '123456789')}-{drawn(12, '123456789')}-{drawn(24)}",
    "slack webhook": f"https://hooks.slack.com/services/T{drawn(9)}/B{drawn(9)}/{drawn(24)}",
    "stripe": "sk_live_" + drawn(24),
    "openai": "sk-proj-" + drawn(48) + "T3BlbkFJ" + drawn(48),
    "anthropic": "sk-ant-api03-" + drawn(93) + "AA",
    "openrouter": "sk-or-v1-" + drawn(64, "0123456789abcdef"),
    "google": "AIzaSy" + drawn(33),
    "npm": "npm_" + drawn(36),
    "pypi": "pypi-AgEIcHlwaS5vcmc" + drawn(70),
    "hugging face": "hf_" + drawn(34),
    "sendgrid": f"SG.{drawn(22)}.{drawn(43)}",
    "twilio": "SK" + drawn(32, "0123456789abcdef"),
    "telegram": f"{drawn(9, '123456789')}:AA{drawn(33)}",
    "jwt": f"eyJhbGciOiJIUzI1NiJ9.eyJ{drawn(40)}.{drawn(43)}",
    "vault": "hvs." + drawn(95),
    "ours": f"rv_{drawn(8)}_{drawn(43)}",
}
PEM = f"-----BEGIN RSA PRIVATE KEY-----\n{drawn(64)}\n{drawn(64)}\n-----END RSA PRIVATE KEY-----"


@cases_in_one_test(
    "name, around",
    [
        (name, around)
        for name in DOCUMENTED
        for around in ["{}", "see {}, please", '{{"a": ["{}"]}}', "key=<{}>", "({})"]
    ],
)
def test_keys_are_detected_by_their_format(name: str, around: str) -> None:
    secret = DOCUMENTED[name]
    text, kinds = redact_text(around.format(secret))
    assert secret[12:] not in text
    assert kinds and REDACTION_MARK.format(kinds[0]) in text


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("postgres://ana:hunter22@db/x", "postgres://ana:[redacted: password]@db/x"),
        ("password=Tr0ub4dor&3", "password=[redacted: password]"),
        ("my password is Tr0ub4dor3, ok?", "my password is [redacted: password], ok?"),
        ("DB_PASSWORD=correcthorse", "DB_PASSWORD=[redacted: password]"),
        (f"before {PEM} after", "before [redacted: private key] after"),
        (
            "my seed phrase is " + "apple river stone " * 4,
            "my seed phrase is [redacted: seed phrase] ",
        ),
        ("curl -u ana:hunter22 https://x.test", "curl -u [redacted: password] https://x.test"),
    ],
)
def test_text_around_a_secret_is_kept(text: str, left: str) -> None:
    assert redact_text(text)[0] == left


@cases_in_one_test(
    "text",
    [
        "the password is important",
        "password: required",
        "Password = getpass()",
        "password=settings.password",
        "the token count is 4096",
        "primary key: 3f2504e0-4f89-41d3-9a0c-0305e82c3301",
        "secret: ${SECRET}",
        "see the passwords of the Authentication-Provider",
        "change the password to Windows11 machine",
        "my password to iCloud2 account",
        "the password to room101 locker",
        "password is SHA256 hashed",
        "password is Base64-encoded",
        "password is md5-hashed",
        "passphrase was 7words long",
        "Passwords: 14-day rotation",
        "Passwort: siehe-1Password-Eintrag",
        "Password: See-wiki/page42",
        "pwd: /Users/ana/Documents/Work2024/q3",
        "Basic Mathematics2ndEdition is my book",
        "token: apple-banana-cherry-2024-05",
        "Key: Ab3/C4-E4-G4/Bb3-D4-F4",
        "payments-api-7d9f8b6c5d-x2kqz",
        "prod-eu-west-1-payments-api-7d9f8b6c5d-x2kqz",
        '{"page_token": "CAUQAA12345678901"}',
        '{"next_page_token": "eyJvZmZzZXQiOjEwMH0abc1"}',
        "https://api.acme.test/list?page_token=CAUQAA12345678901&size=5",
        '{"password_hint": "First pet 1"}',
    ],
)
def test_sentences_about_secrets_are_not_redacted(text: str) -> None:
    assert find_secrets(text) == []


@pytest.mark.parametrize(
    "named",
    [
        {"page_token": "CAUQAA12345678901"},
        {"next_page_token": "eyJvZmZzZXQiOjEwMH0abc1"},
        {"nextPageToken": "CAUQAA12345678901"},
        {"password_hint": "First pet 1"},
    ],
)
def test_values_that_only_describe_a_secret_are_not_redacted(named: dict[str, str]) -> None:
    assert redact_values(named) == (named, ())


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ('{"password": "Blue-Tiger-42"}', "Blue-Tiger-42"),
        ("password=Blue-Tiger-42", "Blue-Tiger-42"),
        ("default password: admin123", "admin123"),
        ("my password is hunter#22 now", "hunter#22"),
        (f"Authorization: token {'0a1b2c3d' * 5}", "0a1b2c3d" * 5),
        ("Authorization: Basic dXNlcjpodW50ZXIyMjE=", "dXNlcjpodW50ZXIyMjE="),
        (f"token: {'0a1b2c3d' * 4}", "0a1b2c3d" * 4),
        (f"secret: {'aB3dE6gH' * 100} end", "aB3dE6gH" * 100),
    ],
)
def test_secrets_in_place_of_words_are_redacted(text: str, secret: str) -> None:
    start = text.index(secret)
    assert [each[1:] for each in find_secrets(text)] == [(start, start + len(secret))]


@pytest.mark.parametrize(
    ("before", "again"),
    [
        ("", "api-key-"),
        ("", "password:"),
        ("", "password "),
        ("see https://x.test/cb?", "key=aaaaaaaaa&"),
        ("", "-----BEGIN PRIVATE KEY-----"),
        ("", "PuTTY-User-Key-File-"),
        ("", "-eyJé"),
        ("", "a" * 1_400 + "."),
        ("", "[redacted: key] md5:0123456789abcdef0123 DB_PASSWORD=hunter22 "),
    ],
)
def test_long_text_costs_as_much_as_many_short_ones(before: str, again: str) -> None:
    count = max(1, 1_000 // len(again))

    def spent(texts: list[str]) -> float:
        begun = time.process_time()
        for text in texts:
            find_secrets(text)
        return time.process_time() - begun

    short, long = [before + again * count] * 64, [before + again * count * 64]
    spent(short[:1])
    assert any(spent(long) < 4 * spent(short) for _ in range(3))


def test_keys_outside_the_training_examples_are_detected() -> None:
    made = secret_shapes.cases(seed=1)
    assert len(secret_shapes.SHAPES) >= 200
    named = [case for case in made if case.service in case.text.replace(case.secret, "").lower()]
    figure("shapes of keys", len(secret_shapes.SHAPES))
    figure("keys redacted, share", 1 - len(missed(named)) / len(named), "min")
    figure("keys without a name beside them redacted, share", 1 - len(missed(made)) / len(made))
    assert len(missed(named)) <= 0.01 * len(named)
    assert len(missed(made)) <= 0.05 * len(made)


def test_values_that_resemble_keys_are_not_redacted() -> None:
    texts = lookalikes.texts(2_000, seed=1)
    figure("look-alikes", len(texts))
    figure("look-alikes redacted, share", len(falsely(texts)) / len(texts), "max")
    assert len(falsely(texts)) <= 0.01 * len(texts), falsely(texts)


@pytest.mark.parametrize("around", ["[redacted: {}]", "md5:{}", "etag: {}", "sha256={}", "call_{}"])
@pytest.mark.parametrize("name", ["github token", "aws access key", "stripe"])
def test_exceptions_to_redaction_hide_no_key(name: str, around: str) -> None:
    assert DOCUMENTED[name][12:] not in redact_text(around.format(DOCUMENTED[name]))[0]


def test_secret_is_detected_by_the_name_of_its_field() -> None:
    message = {"input": {"password": "hunter2!", "api_key": "0a1b2c3d4e5f60718293a4b5c6d7e8f9"}}
    cleaned, kinds = redact_values([message, {"tool_call_id": f"call_{drawn(24)}"}])
    assert cleaned[0]["input"] == dict.fromkeys(message["input"], "[redacted: secret]")
    assert cleaned[1]["tool_call_id"].startswith("call_") and kinds == ("secret",)


def test_signatures_of_services_are_not_redacted() -> None:
    sealed = f"{drawn(200)}-{DOCUMENTED['github token']}-{drawn(200)}"
    block = {"type": "thinking", "thinking": "hm", "signature": sealed}
    assert redact_values(block) == (block, ())
    assert redact_values({"signature": DOCUMENTED["github token"]})[1] == ("github token",)
    assert redact_values({"text": sealed})[1] == ("github token",)


def test_value_without_secrets_is_returned_as_the_same_object() -> None:
    message = {"role": "user", "content": [{"type": "text", "text": "hello"}], "n": 1.5, "x": None}
    assert redact_values(message) == (message, ())
    assert redact_values(message)[0] is message


def test_own_keys_that_look_like_words_are_redacted() -> None:
    assert (
        redact_text("use plain words", ("plain words",))[0] == "use [redacted: key of this program]"
    )
    assert remove_own_secrets({"a": ["plain words"]}, ["plain words"]) == {
        "a": ["[redacted: key of this program]"]
    }


def test_own_keys_of_an_object_stay_two_entries() -> None:
    ours = ("plain words", "other words")
    assert remove_own_secrets({"plain words": 1, "other words": 2}, ours) == {
        "[redacted: key of this program] 2": 1,
        "[redacted: key of this program]": 2,
    }


def test_image_data_is_not_searched() -> None:
    blob = drawn(4_000, LETTERS + "+/")
    hidden = f"{blob[:2000]}/AKIA{drawn(16, 'ABCDEFGH234567')}/{blob[2000:]}"
    assert find_secrets(hidden) == []
    assert find_secrets(f"![x](data:image/png;base64,{hidden[:3000]})") == []


def test_every_key_format_has_a_kind_and_a_prefix() -> None:
    assert all(kind and prefixes.split() and body for kind, prefixes, body in KEY_FORMATS)


@given(st.text(max_size=300))
def test_redaction_of_any_text_is_stable(text: str) -> None:
    once = redact_text(text)[0]
    assert redact_text(once)[0] == once


@given(st.sampled_from(list(DOCUMENTED.values())), st.text(max_size=40), st.text(max_size=40))
def test_redacting_twice_equals_redacting_once(secret: str, before: str, after: str) -> None:
    once, kinds = redact_text(f"{before} {secret} {after}")
    assert kinds and redact_text(once) == (once, ())
    assert leaked(f"x {secret}", secret) is False
