"""The chat loop of docs/guide.md, as type checkers see it."""

from openai import OpenAI

import reverie
from reverie.testing import ScriptedModel

ana = reverie.open("loop.db").space("ana")

dinner = ana.session("dinner")
with ScriptedModel(["No satay for you.", "It has peanuts."]) as model:
    client = OpenAI(base_url=model.base_url, api_key="unused")
    for question in ("What should I not order tonight?", "Why not?"):
        dinner.append({"role": "user", "content": question})
        context = dinner.context()
        reply = client.chat.completions.create(
            model="scripted",
            messages=[{"role": "system", "content": context.system}, *context.history],
        )
        dinner.append(reply.choices[0].message)
    client.close()
    asked = model.requests[1]["messages"]

assert "allergic to peanuts" in asked[0]["content"]
assert [message["role"] for message in asked] == ["system", "user", "assistant", "user"]
