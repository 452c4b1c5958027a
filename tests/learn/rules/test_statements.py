"""What the rules extract, and above all what they do not."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reverie.learn.rules.statements import (
    MAX_CONTENT_CHARS,
    MAX_STATEMENTS,
    extract_requests,
    extract_statements,
)
from tests.tables import cases_in_one_test

ANY_TEXT = st.text(st.characters(exclude_categories=()))
check = settings(deadline=None, max_examples=300, derandomize=True)
CATEGORIES = {"person", "health", "preference", "context", "project", "general"}


def asks_to_remember(text: str) -> bool:
    return any(True for _ in extract_requests(text))


STATEMENTS = [
    # names
    ("My name is Ana", "The user's name is Ana"),
    ("my name is ana", "The user's name is ana"),
    ("My name's Ana Maria Lopez.", "The user's name is Ana Maria Lopez"),
    ("My name is Łukasz", "The user's name is Łukasz"),
    ("My name is 李明", "The user's name is 李明"),
    ("My name is O'Brien", "The user's name is O'Brien"),
    ("My name is Jean-Luc", "The user's name is Jean-Luc"),
    ("MY NAME IS ANA", "The user's name is ANA"),
    ("I'm called Bob.", "The user's name is Bob"),
    ("I am called Bob", "The user's name is Bob"),
    ("Call me Ishmael.", "The user's name is Ishmael"),
    ("You can call me Al, thanks", "The user's name is Al"),
    ("Hi, my name is Ana!", "The user's name is Ana"),
    ("Hello there, my name is Ana", "The user's name is Ana"),
    ("hi my name is ana", "The user's name is ana"),
    ("No, my name is Anna", "The user's name is Anna"),
    # homes
    ("I live in Berlin", "The user lives in Berlin"),
    ("i live in Berlin", "The user lives in Berlin"),
    ("I live in St. Petersburg.", "The user lives in St. Petersburg"),
    ("I live in New York City!", "The user lives in New York City"),
    ("I live in Frankfurt am Main.", "The user lives in Frankfurt am Main"),
    ("I live in Stratford-upon-Avon.", "The user lives in Stratford-upon-Avon"),
    ("I live in the Netherlands", "The user lives in the Netherlands"),
    ("I live in the UK.", "The user lives in the UK"),
    ("I live in Washington D.C. with my cat", "The user lives in Washington D.C."),
    ("I live in São Paulo", "The user lives in São Paulo"),
    ("I live in 東京", "The user lives in 東京"),
    ("I live in Berlin, Germany.", "The user lives in Berlin"),
    ("I live in Berlin with my wife", "The user lives in Berlin"),
    ("I live in Berlin because of my job", "The user lives in Berlin"),
    ("I live in Berlin now.", "The user lives in Berlin"),
    ("I live in Berlin (Germany)", "The user lives in Berlin"),
    ("I live in Berlin - it's great", "The user lives in Berlin"),
    ("I live in Berlin :)", "The user lives in Berlin"),
    ("I live in Kreuzberg in Berlin", "The user lives in Kreuzberg"),
    ("I now live in Paris", "The user lives in Paris"),
    ("I currently live in Paris", "The user lives in Paris"),
    ("Now I live in Paris", "The user lives in Paris"),
    ("I am based in Lisbon", "The user lives in Lisbon"),
    ("I'm based in Lisbon.", "The user lives in Lisbon"),
    ("I’m based in Lisbon.", "The user lives in Lisbon"),
    ("I moved to Rome", "The user lives in Rome"),
    ("I just moved to Rome last week", "The user lives in Rome"),
    ("I've moved to Rome.", "The user lives in Rome"),
    ("I have recently moved to Rome, it's great", "The user lives in Rome"),
    ("I moved to Rome today!", "The user lives in Rome"),
    ("I moved to the Netherlands to study", "The user lives in the Netherlands"),
    ("Actually, I live in Paris", "The user lives in Paris"),
    ("Oh well, actually I live in Paris", "The user lives in Paris"),
    ("Sorry, I meant I live in Rome", "The user lives in Rome"),
    ("By the way, I live in Rome.", "The user lives in Rome"),
    ("btw I live in Rome.", "The user lives in Rome"),
    ("Correction: I live in Rome.", "The user lives in Rome"),
    ("Thanks! I live in Rome. What's the weather?", "The user lives in Rome"),
    ("- I live in Rome\n- I work at Acme", "The user lives in Rome; The user works at Acme"),
    # work
    ("I work at Acme", "The user works at Acme"),
    ("I work for Bank of America.", "The user works at Bank of America"),
    ("I work at Acme Inc. I live in Rome.", "The user works at Acme Inc; The user lives in Rome"),
    ("I work at Procter & Gamble", "The user works at Procter & Gamble"),
    ("I work at McDonald's", "The user works at McDonald's"),
    ("I work at eBay", "The user works at eBay"),
    ("I work for IBM in Zurich", "The user works at IBM"),
    ("I work for the BBC", "The user works at the BBC"),
    ("I now work at Acme", "The user works at Acme"),
    ("I started at Acme", "The user works at Acme"),
    ("I just started working at Acme on Monday", "The user works at Acme"),
    ("I work as a nurse", "The user works as a nurse"),
    (
        "I work as a software engineer at Acme",
        "The user works as a software engineer; The user works at Acme",
    ),
    ("I work as CTO.", "The user works as CTO"),
    ("I'm a teacher by profession", "The user works as a teacher"),
    ("I am an electrician by trade.", "The user works as an electrician"),
    ("My job is a teacher", "The user works as a teacher"),
    ("My job is being a pilot", "The user works as a pilot"),
    # teams
    ("I moved to the Design team", "The user is on the Design team"),
    ("I joined the platform team last month", "The user is on the platform team"),
    ("I'm on the Data Science team.", "The user is on the Data Science team"),
    ("I'm in the Sales department", "The user is on the Sales department"),
    ("I moved to the Research group", "The user is on the Research group"),
    # preferences
    ("I prefer tea", "The user prefers tea"),
    ("I prefer tea to coffee.", "The user prefers tea over coffee"),
    ("I prefer tea over coffee", "The user prefers tea over coffee"),
    ("I prefer flights to Spain", "The user prefers flights to Spain"),
    ("I prefer walking to work", "The user prefers walking to work"),
    ("I prefer tabs when writing Go", "The user prefers tabs when writing Go"),
    ("I really prefer short answers, thanks", "The user prefers short answers"),
    ("I prefer to work at night", "The user prefers to work at night"),
    ("I love pizza", "The user loves pizza"),
    ("I really love pizza!!", "The user loves pizza"),
    ("I like dogs and cats", "The user likes dogs and cats"),
    ("I love mac and cheese", "The user loves mac and cheese"),
    ("I like strong, black and sweet coffee", "The user likes strong, black and sweet coffee"),
    ("I love pizza, it's great", "The user loves pizza"),
    ("I love pizza and hate pasta", "The user loves pizza; The user hates pasta"),
    ("I enjoy hiking a lot", "The user enjoys hiking"),
    ("I like the Beatles", "The user likes the Beatles"),
    ("I hate spiders because they bite", "The user hates spiders"),
    ("I dislike olives", "The user dislikes olives"),
    ("I can't stand jazz", "The user can't stand jazz"),
    ("I can’t stand jazz", "The user can't stand jazz"),
    ("I don't like mushrooms", "The user does not like mushrooms"),
    ("I do not like mushrooms anymore", "The user does not like mushrooms"),
    ("I don't really enjoy running.", "The user does not enjoy running"),
    ("I no longer like beer", "The user does not like beer"),
    ("My favourite colour is blue", "The user's favourite colour is blue"),
    ("my favorite ice cream flavor is mint", "The user's favourite ice cream flavor is mint"),
    ("My favourite band is the Beatles.", "The user's favourite band is the Beatles"),
    ("My favourite food is mac and cheese", "The user's favourite food is mac and cheese"),
    # people
    ("My boss is Anna", "The user's boss is Anna"),
    ("My new boss is Anna Smith.", "The user's boss is Anna Smith"),
    ("my wife's name is Anne", "The user's wife is Anne"),
    ("My wife is called Anne, she's a nurse", "The user's wife is Anne; Anne is a nurse"),
    ("My doctor is Dr. Smith.", "The user's doctor is Dr. Smith"),
    ("My dog is named Rex", "The user's dog is Rex"),
    ("Anna is my boss", "The user's boss is Anna"),
    ("Alec is my boss by the way", "The user's boss is Alec"),
    ("I live in Rome, btw.", "The user lives in Rome"),
    ("Anna is my boss at Acme.", "The user's boss is Anna"),
    ("Dr. Jane Goodall is my teacher", "The user's teacher is Dr. Jane Goodall"),
    ("Tom is my best friend", "The user's friend is Tom"),
    ("My son is Max and my daughter is Lea", "The user's son is Max; The user's daughter is Lea"),
    # dates and health
    ("My birthday is May 3", "The user's birthday is May 3"),
    ("My birthday is on the 3rd of May", "The user's birthday is 3rd of May"),
    ("I was born on May 3rd, 1990.", "The user's birthday is May 3rd, 1990"),
    ("I was born on 1990-05-03", "The user's birthday is 1990-05-03"),
    ("I was born on 3.5.1990.", "The user's birthday is 3.5.1990"),
    ("I'm allergic to peanuts", "The user is allergic to peanuts"),
    ("I'm severely allergic to bee stings!", "The user is allergic to bee stings"),
    (
        "I am allergic to nuts, shellfish and cats.",
        "The user is allergic to nuts, shellfish and cats",
    ),
    # what ended
    ("I no longer work at Acme", "The user no longer works at Acme"),
    ("I don't work at Acme anymore", "The user no longer works at Acme"),
    ("I do not work for Acme any more.", "The user no longer works at Acme"),
    ("I quit my job at Acme", "The user no longer works at Acme"),
    ("I no longer work as a nurse", "The user no longer works as a nurse"),
    ("I no longer live in Rome", "The user no longer lives in Rome"),
    ("I don’t live in Rome any longer", "The user no longer lives in Rome"),
    ("Update: I no longer live in Rome.", "The user no longer lives in Rome"),
    ("I'm no longer on the Design team", "The user is no longer on the Design team"),
    ("Anna is no longer my boss", "Anna is no longer the user's boss"),
    ("Anna is not my boss anymore", "Anna is no longer the user's boss"),
    ("Anna isn't my boss any more.", "Anna is no longer the user's boss"),
    ("My boss is no longer Anna", "Anna is no longer the user's boss"),
    # several at once
    ("My name is Ana and I live in Rome", "The user's name is Ana; The user lives in Rome"),
    ("My name is Ana, I live in Rome", "The user's name is Ana; The user lives in Rome"),
    ("I'm 34 and I live in Rome", "The user is 34 years old; The user lives in Rome"),
    ("I live in Rome; I work at Acme", "The user lives in Rome; The user works at Acme"),
    ("I'm Polish but I live in Rome", "The user is Polish; The user lives in Rome"),
    ("I live in Rome but my wife is Anne", "The user lives in Rome; The user's wife is Anne"),
    ("I live in Rome.\nI work at Acme.", "The user lives in Rome; The user works at Acme"),
    ("I live in Rome\nI work at Acme", "The user lives in Rome; The user works at Acme"),
    ("About me:\n- I live in Rome\n- I love tea", "The user lives in Rome; The user loves tea"),
    ("I live in Rome. Actually, I live in Bari", "The user lives in Rome; The user lives in Bari"),
    (
        "I no longer work at Acme, I work at Initech",
        "The user no longer works at Acme; The user works at Initech",
    ),
    ("I love tea. I love tea!", "The user loves tea"),
    # several people of one kind
    (
        "My older son is 7. My younger son is 4.",
        "The user's older son is 7 years old; The user's younger son is 4 years old",
    ),
    ("My older son is Max", "The user's older son is Max"),
    ("My little sister is vegan.", "The user's little sister is vegan"),
    ("My new boss is Karin", "The user's boss is Karin"),
    ("My old friend Tom is vegan", "The user's friend is Tom; Tom is vegan"),
    ("I have a son. He's 7.", "The user has a son; The user's son is 7 years old"),
    ("My neighbour has a son. He's 7.", "The user's neighbour has a son"),
    ("My sister Mia met a man. He is a nurse.", "The user's sister is Mia"),
    ("My kids are 4 and 9.", "The user's kids are 4 and 9 years old"),
    ("My kids are 3, 5 and 9 years old.", "The user's kids are 3, 5 and 9 years old"),
    # several values after one verb
    ("I'm diabetic and allergic to nuts.", "The user is diabetic; The user is allergic to nuts"),
    (
        "I'm 34, vegan and allergic to nuts.",
        "The user is 34 years old; The user is vegan; The user is allergic to nuts",
    ),
    (
        "My son is autistic and on Ritalin",
        "The user's son is autistic; The user's son takes Ritalin",
    ),
    ("I have a cat and two dogs.", "The user has a cat; The user has two dogs"),
    ("I have asthma and a bad knee", "The user has asthma; The user has a bad knee"),
    # a condition that is a wish
    (
        "I'm allergic to nuts. If you suggest recipes, leave them out.",
        "The user is allergic to nuts",
    ),
    (
        "I'm allergic to nuts. If you suggest a recipe leave them out",
        "The user is allergic to nuts",
    ),
    ("I'm coeliac, can you suggest a bread recipe?", "The user is coeliac"),
    ("You should know I'm dyslexic.", "The user is dyslexic"),
    # people named on the way
    (
        "I own a small bakery in Ghent with my cousin Lotte.",
        "The user owns a small bakery in Ghent; The user's cousin is Lotte",
    ),
    (
        "I'm learning Portuguese because my girlfriend Inês is from Coimbra.",
        "The user is learning Portuguese; The user's girlfriend is Inês; Inês is from Coimbra",
    ),
    ("My cousin Leila's studying law", "The user's cousin is Leila; Leila studies law"),
    ("My cousin Leila's car is red", "The user's cousin is Leila"),
    # states and habits
    ("I live just outside Boston with my wife.", "The user lives just outside Boston"),
    ("I live in a studio flat in Warsaw", "The user lives in a studio flat in Warsaw"),
    ("I've been playing chess since I was six", "The user plays chess"),
    ("I'm scared of flying, so I take the train", "The user is scared of flying"),
    ("My wife is expecting twins!", "The user's wife is expecting twins"),
    ("I go to church every Sunday", "The user goes to church every Sunday"),
    ("My driving test is on 11 April, wish me luck.", "The user's driving test is on 11 April"),
    ("I'm not married anymore.", "The user is no longer married"),
    # ends
    ("I'm no longer vegan.", "The user is no longer vegan"),
    ("I'm not vegan anymore.", "The user is no longer vegan"),
    (
        "My sister Mia no longer lives in Rome",
        "The user's sister is Mia; Mia no longer lives in Rome",
    ),
]

LEFT_ALONE = {
    "questions": """
        Do I live in Berlin? | I live in Berlin? | I live in Berlin, right?
        I live in Berlin, right | My name is Ana, isn't it? | Where do I live | What is my name?
        Is Anna my boss? | Anna is my boss, right | I work at Acme, don't I
        Do you remember that I live in Berlin? | Do you remember my name?
        Should I always answer in French?
    """,
    "conditions and hypotheses": """
        If I live in Berlin, I pay taxes there
        If my name is Ana and I live in Berlin, then it works | When I live in Berlin I cycle
        I live in Berlin if you count weekends | I would live in Berlin | I might live in Berlin
        Maybe I live in Berlin | I live in Berlin, maybe | I live in Berlin, I think
        I live in Berlin I think | Suppose I live in Berlin.
        Suppose I'm a lawyer. I live in Paris. What do I pay?
        Let's say my name is Bob. I work at Acme. | Imagine: I live in Berlin.
        Imagine you are a wizard. I live in Narnia. | Hypothetically, I live in Berlin
        What if I live in Berlin. I work at Acme. | I wish I lived in Berlin | I'd love pizza
        I would like a pizza | I'd like to live in Berlin | I would love to work at Acme
        I want to live in Berlin | I will move to Berlin | I'm moving to Berlin
        I used to live in Berlin | I lived in Berlin | I worked at Acme | I have worked at Acme
    """,
    "make-believe and material": """
        Let's role-play. My name is Captain Hook. | You are a pirate. My name is Hook.
        Pretend that my boss is Anna. I live in Rome.
        Write me a short story about a cat. My name is Tom. | Translate: I live in Berlin.
        Translate this to German. I live in Berlin.
        Please proofread. I live in Berlin since three years.
        Fix the grammar: I live in Berlin since three years.
        How do I say this in French: my name is Ana | Dear Sir, I live in Berlin. I work at Acme.
        In the game I'm a mage and I live in Solitude | In my dreams, I live in Paris
        According to my passport, my name is Bob
    """,
    "quotes of others": """
        He said I live in Berlin | He said that he is tired and I live in Berlin
        She thinks my wife is Anne | Bob told me: I live in Berlin. I work at Acme.
        He said: "It's fine. I live in Berlin." | “It's fine. I live in Berlin.”
        'It is fine. I live in Berlin.' | ‘It’s fine. I don’t work at Acme anymore.’ That was it.
        "I live in Berlin | «C'est bon. I live in Berlin.» | "I live in Berlin", he said
        I live in Berlin, he said. | I love Mondays, said no one ever | Bob: I live in Berlin
        Bob: Hi there. I live in Berlin. | [10:32] Bob: I live in Berlin | > I live in Berlin
        My friends call me Bob | They say my name is Bob | His name is Bob
        His brother lives in Berlin
    """,
    "code": """
        `I live in Berlin` | # I live in Berlin | // my name is Ana
        print("I live in Berlin. I work at Acme.") | {"text": "I live in Berlin. My name is Ana."}
    """,
    "negations": """
        I don't live in Berlin | I do not work at Acme | My name is not Bob | My boss is not Anna
        Anna is not my boss | Anna was my boss | I never work at Acme | I live in Berlin no more
        I live in Berlin, not | I live in Berlin... not | I prefer not to say
        I'm not allergic to nuts | I'm not on the Design team | Don't call me Bob | I like nothing
    """,
    "jokes": """
        I live in Paris. Just kidding! | I live in Paris. I wish! | I love Mondays. Not.
        I love meetings /s | I live in Paris lol | I just love bugs | Oh great, I love bugs
        I love Mondays 🙄
    """,
    "for a time only": """
        I live in Berlin this week | I live in Berlin right now | I live in Berlin for now
        I live in Berlin for two months | I live in Berlin until May
        I live in Berlin, but only this week | I live in Berlin. But only for now.
        I live in Berlin temporarily | I live in Berlin when I'm not travelling
        I'm working at home today | I work at Starbucks today | I'm on the Design team this week
        My boss is Anna today | I moved to Berlin for the summer | I moved to Berlin in 1999
        I moved to Berlin ten years ago | I moved to Berlin when I was ten
        I moved to Berlin. Then I moved to Paris. | I moved to Berlin and then to Paris
        I started at Acme in 2010 | I started at Acme but left | I started at Acme. I quit.
    """,
    "placeholders": """
        My name is {name} | My name is <NAME> | My name is [Your Name] | My name is X
        I work at [Company] | I live in {value} | my favourite {kind} is {value}
    """,
    "no names, no places": """
        My name is irrelevant | my name is irrelevant | My name is hard to spell
        my name is spelled with a k | My name is Earl is a series | My name is on the list
        Call me later | Call me crazy | Call me tomorrow | call me when you can | Call me Monday
        I'm called in on weekends | I live in fear | I live in a dream | I live in the moment
        I live in Vim | I live in Berlin and Paris | I live in Berlin or Paris
        I live in Trinidad and Tobago | I moved to Linux | I moved to Rust | I moved to GitHub
        I've moved to AWS | I moved to Python 3 | I moved to Sales | I moved to Chapter Two
        I moved to Hetzner | I moved to Monday | I moved to the Pro plan | I moved to the cloud
        I moved to the next task | I work at home | I work at night | I work for myself
        I work for a living | I work at least 40 hours | I work at Acme no longer
        I started at five | I started at Step 3 | I left Acme | I work as a team
        I work as hard as I can | My job is a nightmare | My job is boring
        My job is to write code | My job is a living hell | I'm on the same team
        I'm on the winning team | I'm on the train | I joined the Facebook group | My boss is him
        My boss is tired | My wife is at home | My wife is a gem | My wife is busy
        My boss is late and strict | MY BOSS IS TIRED | My Wife Is Sick
        I Live In Trouble | My boss is Anna's friend | My boss is Anna and Bob
        Anna is my boss's wife | Anna is my dog walker | He is my boss | This is my dog
        Nobody is my boss | No one is my boss | Coffee is my best friend | Time is my friend
        My birthday is tomorrow | My birthday is soon | My birthday is May 3 or 4
        I was born on a Monday | I was born in a small town | My favourite part is when he dies
        My favourite thing is that one | My favourite colour is not blue
        My favourite song is this one | I'm allergic to it | I'm allergic to mornings
    """,
    "questions that sound like requests": """
        Would you remember that I live in Rome? | Can you remember that I live in Rome if I move?
        Would you say I'm vegan? | I'm scared of losing | I'm afraid of you
    """,
    "former and fictional": """
        My old boss is Peter | My old wife is Anna | I live in Tokyo in Animal Crossing
        I live in a village in Minecraft | I'm Groot | I'm Going Home | I'm 20 in line
        I moved to Bitwarden | I moved to Proton Pass | I stopped taking it
        I stopped taking notes | I hate myself | My favourite restaurant is closed on Mondays
        My favourite band is playing tonight | My favourite show is back
    """,
    "no likes that mean something": """
        I love it | I love this | I like that idea | I like the idea | I like the second one
        I like the new design | I like your style | I love my wife | I love you | I like to swim
        I like how it looks | I love when it rains | I like option B | I hate to say it
        I hate asking, but can you help | I like Python better | I like pizza more than pasta
        I like, like, really want this | I like tall, dark strangers | I love pizza, Bob
        I prefer it | I prefer the first one | I prefer the shorter text | I prefer that you wait
        I prefer A | I prefer tea when I am tired | I liked the film
    """,
    "tasks and figures of speech": """
        Remember to buy milk | Please remember to call Bob | Don't forget to call Bob
        Don't forget the milk | Remember when we went to Rome | Remember that time we went to Rome
        Remember that movie | Remember that song I sang | Please remember my birthday
        Please remember me | I remember that my name is Ana | Remember me | Remember
        Remember that | Never mind | Never again! | Never heard of it | Never say never
        Never do that again | Never give up | Always a pleasure | Always happy to help
        Always wanted to see Rome | I always answer in French | From now on he was alone
        From now on | Always
    """,
    "other languages": """
        Ich wohne in Berlin | Mein Name ist Ana | Je m'appelle Ana | Me llamo Ana y vivo en Madrid
        私の名前はアナです | Меня зовут Анна
    """,
    "nothing at all": """
        I | I live in | I live in . | My name is | my name is , | Hi | no | ... | ?
    """,
}
HARDER_TO_SEE = [
    "Here is his mail:\n\nI live in Berlin. I work at Acme.",
    "Translate this.\nRemember that I live in Berlin.",
    '"Dear Bob,\nI live in Berlin.\nYours"',
    "Bob 10:32\nI live in Berlin",
    "On Monday Bob wrote:\nI live in Berlin",
    "-----Original Message-----\nI live in Berlin",
    "<document>\nI live in Berlin.\n</document>",
    "From: Bob\nI live in Berlin",
    "```\nI live in Berlin\n```",
    "```python\nI live in Berlin\n",
    "~~~\nMy name is Ana\n~~~",
    "    I live in Berlin",
    "\tMy name is Ana",
    "I moved to New\nthings that were better",
    "Some long line that was broken by a mail program, then I moved to New\nYork",
    "",
    "   ",
    "\n\n\n",
    "\ud800",
    "I live in \ud800",
    "I love \x00",
    "I live in " + "Very " * 20 + "Long",
    "I prefer " + "x" * 81,
    "I love " + "x" * 81,
    "My name is " + "X" * 81,
    "Remember that I " + "x" * 500,
    "I live in Berlin. " + "word " * 20_000,
]

EXPLICIT = [
    (
        "Could you keep in mind that my kids are 4 and 9?",
        "person",
        "The user's kids are 4 and 9 years old",
    ),
    (
        "I'd like you to remember that I'm allergic to latex.",
        "health",
        "The user is allergic to latex",
    ),
    ("Remember that the wifi code is 1234.", "general", "The wifi code is 1234"),
    ("Please remember that Anna hates fish", "general", "Anna hates fish"),
    ("please remember I have two kids", "person", "The user has two kids"),
    ("Please remember our standup is at 9:30.", "general", "Our standup is at 9:30"),
    ("Remember: we ship on Fridays!", "general", "We ship on Fridays"),
    ("Remember this: we ship on Fridays", "general", "We ship on Fridays"),
    ("Don't forget that I am diabetic", "health", "The user is diabetic"),
    ("Don’t forget that I’m diabetic", "health", "The user is diabetic"),
    ("do not forget that we ship on Friday", "general", "We ship on Friday"),
    ("Keep in mind that I'm vegetarian.", "health", "The user is vegetarian"),
    ("Hi! Please keep in mind that I'm vegetarian.", "health", "The user is vegetarian"),
    ("Remember that on Mondays I work late", "general", "On Mondays I work late"),
    ("Remember that if I ask, the answer is no", "general", "If I ask, the answer is no"),
    ("Remember that I live in Rome this week", "general", "I live in Rome this week"),
    ('Remember that "a. b" is my motto.', "general", '"a. b" is my motto'),
    ("Remember that Dr. No is a film. OK?", "general", "Dr. No is a film"),
    ("Remember that my name is Ana", "person", "The user's name is Ana"),
    ("Please remember my name is Ana.", "person", "The user's name is Ana"),
    ("remember I hate fish", "preference", "The user hates fish"),
    ("Remember: I live in Rome", "context", "The user lives in Rome"),
    ("Never forget that I love tea", "preference", "The user loves tea"),
    ("From now on, answer in French.", "preference", "From now on: answer in French"),
    ("from now on please be brief", "preference", "From now on: be brief"),
    ("From now on: no emojis", "preference", "From now on: no emojis"),
    ("From now on I live in Rome", "context", "The user lives in Rome"),
    ("From now on call me Ana", "person", "The user's name is Ana"),
    ("Always answer in French", "preference", "Always answer in French"),
    ("please always use `ruff check`.", "preference", "Always use `ruff check`"),
    ("And never use emojis!", "preference", "Never use emojis"),
    ("Always ask first, unless I hurry", "preference", "Always ask first, unless I hurry"),
    ("Always call me Ana", "person", "The user's name is Ana"),
    ("Never call me Bob", "preference", "Never call me Bob"),
    ("Always answer in French. Translate this.", "preference", "Always answer in French"),
]


@cases_in_one_test("text, contents", STATEMENTS)
def test_plain_statements_are_extracted(text: str, contents: str) -> None:
    found = extract_statements(text)
    assert "; ".join(statement.content for statement in found) == contents
    assert not any(statement.explicit for statement in found)
    assert not asks_to_remember(text)


def lines_of(table: dict[str, str]) -> list[str]:
    """Text between bars, or alone on its line."""
    rows = [row.strip() for block in table.values() for row in block.strip().splitlines()]
    return [text for row in rows for text in row.split(" | ")]


@cases_in_one_test("text", lines_of(LEFT_ALONE))
def test_doubtful_statements_are_not_extracted(text: str) -> None:
    assert extract_statements(text) == []


@cases_in_one_test("text", HARDER_TO_SEE)
def test_statements_that_are_not_the_persons_own_are_not_extracted(text: str) -> None:
    assert extract_statements(text) == []


@cases_in_one_test("text, category, content", EXPLICIT)
def test_statement_after_a_request_to_remember_is_explicit(
    text: str, category: str, content: str
) -> None:
    (statement,) = extract_statements(text)
    assert (statement.category, statement.content) == (category, content)
    assert statement.explicit
    assert asks_to_remember(text)


ABOUT = [
    ("I'm called Ana", "person", "name", True, "Ana"),
    ("I live in Rome", "context", "home", True, "Rome"),
    ("I work at Acme", "context", "work", True, "Acme"),
    ("I'm on the Design team", "context", "team", True, "Design"),
    ("I work as a nurse", "context", "job", True, "a nurse"),
    ("I prefer tea to coffee", "preference", "coffee or tea", True, "tea over coffee"),
    ("I love New York", "preference", "new york", True, "New York"),
    ("I don't like fish", "preference", "fish", True, "fish"),
    ("My favourite Greek dish is fava", "preference", "favourite Greek dish", True, "fava"),
    ("I'm allergic to Penicillin", "health", "penicillin allergy", True, "Penicillin"),
    ("My birthday is 3 May", "person", "birthday", True, "3 May"),
    ("Anna is my boss", "person", "boss", True, "Anna"),
    ("My dog is Rex", "person", "Rex", False, "Rex"),
]
ENDED = [
    ("I no longer work at Acme", "context", "work", True, "Acme"),
    ("I no longer live in Rome", "context", "home", True, "Rome"),
    ("Anna is no longer my boss", "person", "boss", True, "Anna"),
    ("Rex is no longer my dog", "person", "Rex", False, "Rex"),
]


@cases_in_one_test(
    "text, category, subject, single, value, retracts",
    [*((*row, False) for row in ABOUT), *((*row, True) for row in ENDED)],
)
def test_statement_has_its_subject(
    text: str, category: str, subject: str | None, single: bool, value: str, retracts: bool
) -> None:
    (found,) = extract_statements(text)
    assert (found.category, found.subject, found.value) == (category, subject, value)
    assert (found.single_valued, found.retracts) == (single, retracts)


def test_request_that_says_more_than_a_pattern_is_also_kept_whole() -> None:
    found = extract_statements("Remember that my wife is Anne and her birthday is 3 May")
    assert [statement.content for statement in found] == [
        "The user's wife is Anne",
        "My wife is Anne and her birthday is 3 May",
    ]
    assert all(statement.explicit for statement in found)


def test_several_facts_in_one_request_are_each_explicit() -> None:
    found = extract_statements("Remember that my name is Ana and I live in Rome.")
    assert [(statement.subject, statement.explicit) for statement in found] == [
        ("name", True),
        ("home", True),
    ]


def test_repeated_statement_keeps_its_last_position() -> None:
    found = extract_statements("I live in Rome. No, I live in Bari. Sorry, I live in Rome.")
    assert [statement.value for statement in found] == ["Bari", "Rome"]


def test_statement_requested_once_stays_explicit_when_repeated() -> None:
    (statement,) = extract_statements("Remember that I love tea. I love tea.")
    assert statement.explicit


def test_only_the_last_ten_statements_are_returned() -> None:
    things = [
        "tea",
        "jam",
        "rice",
        "fish",
        "bread",
        "milk",
        "salt",
        "corn",
        "beans",
        "eggs",
        "figs",
    ]
    found = extract_statements(" ".join(f"I love {thing}." for thing in things))
    assert [statement.value for statement in found] == things[-MAX_STATEMENTS:]


@pytest.mark.parametrize(
    ("text", "asks"),
    [
        ("Please remember this", True),
        ("Remember this.", True),
        ("Hello! Remember that I live in Rome. Thanks.", True),
        ("Some words first.\n\nFrom now on, be brief.", True),
        ("Always answer in French", True),
        ("Remember to buy milk", False),
        ("Please remember to buy milk", False),
        ("Don't forget to call", False),
        ("Do you remember that I live in Rome?", False),
        ("Remember that I live in Rome?", False),
        ("I remember that well", False),
        ("Remember when we met", False),
        ("Remember that time we met", False),
        ("I always answer in French", False),
        ("Always a pleasure", False),
        ("He said: remember that I live in Rome", False),
        ("> Remember that I live in Rome", False),
        ("```\nAlways answer in French\n```", False),
        ("", False),
    ],
)
def test_asks_to_remember_recognizes_requests(text: str, asks: bool) -> None:
    assert asks_to_remember(text) is asks


PIECES = st.sampled_from(
    [
        *("I ", "my ", "I'm ", "live in ", "work at ", "love ", "name is ", "boss is ", "prefer "),
        *("remember that ", "always ", "answer ", "from now on ", "Please ", "call me ", "is my "),
        *("boss", "Ana", "Rome", "pizza", "May 3", "the ", "a ", "team ", "no longer ", "to "),
        *(
            " and ",
            " but ",
            ", ",
            ". ",
            "; ",
            ": ",
            "? ",
            "! ",
            "\n",
            "\n\n",
            "> ",
            "```",
            "'",
            '"',
        ),
        *("`", "“", "’", "...", "é", "東京", "👍", "\ud800", "\u2028", "\x00", "\ue000", "\ue001"),
        *("{value}", "{", "}", "%s", "St. ", "e.g. ", "- ", "1. ", "    ", " " * 60, "x" * 90),
    ]
)


@check
@given(st.one_of(ANY_TEXT, st.lists(PIECES, max_size=40).map("".join)))
def test_extract_statements_returns_valid_statements_for_any_text(text: str) -> None:
    found = extract_statements(text)
    assert found == extract_statements(text)
    assert len(found) <= MAX_STATEMENTS
    assert len({statement.content for statement in found}) == len(found)
    for statement in found:
        assert 0 < len(statement.content) <= MAX_CONTENT_CHARS
        assert len(statement.content.splitlines()) == 1
        assert statement.content == statement.content.strip()
        assert statement.content.encode() and "\ue000" not in statement.content
        assert statement.category in CATEGORIES
        assert statement.value is None or 0 < len(statement.value) <= 80
        assert statement.subject is None or statement.subject.strip()
    assert asks_to_remember(text) or not any(statement.explicit for statement in found)


@check
@given(st.lists(PIECES, max_size=12).map("".join), st.sampled_from(["> ", "    ", "\t"]))
def test_quoted_lines_give_no_statement(text: str, mark: str) -> None:
    quoted = "".join(f"{mark}{line}\n" for line in text.splitlines())
    assert extract_statements(quoted) == []


HOSTILE = [
    *("I live in " * 500, "my name is " * 500, "remember that " * 400, "my favourite " * 400),
    *("I love " + "a, " * 1_900, "I love " + "a and " * 900, "I prefer " + "x to " * 1_000),
    *("I live in " + "A. " * 1_900, "I live in " + "of " * 1_900, "I live in " + "-" * 5_900),
    *("." * 5_990 + "x", "!?" * 2_990 + "x", "'a " * 1_900, "' 'a" * 1_400, "a' " * 1_900),
    *('"' * 5_999, "`" * 5_999, "“" * 5_999, "<" * 5_999, "\ud800" * 5_999, "'" * 5_999),
    *("```\n" * 1_400, "\n" * 5_999, "\n " * 2_900, " " * 5_999, "- " * 2_900, ":\n" * 2_900),
    *("a " * 2_900 + "is my boss", "on " + "a " * 2_900 + "wrote", "I was born on " * 400),
    *("write " * 900, "write a a a a a a " * 300, "for a b c d " * 400, "I love" + " !" * 2_900),
    *("no, " * 1_400, "hi there " * 600, ", and I" * 800, ", I" * 1_900, " but " * 1_100),
    *("I live in Rome. " * 6_250, "'" * 100_000, "x" * 100_000, "\n" * 100_000),
]


@cases_in_one_test("text", HOSTILE)
def test_long_and_hostile_texts_are_parsed(text: str) -> None:
    assert len(extract_statements(text)) <= MAX_STATEMENTS
    asks_to_remember(text)


@pytest.mark.parametrize(
    "text",
    [
        "I don't drive at night",
        "I don't smoke in the house",
        "I don't cook on Sundays",
        "I don't drive to work",
        "I don't speak French at home",
        "I don't speak English with my parents",
        "I have an MS in computer science",
        "I have add, remove and update endpoints",
    ],
)
def test_restricted_or_mistaken_habits_are_not_learned(text: str) -> None:
    assert extract_statements(text) == []


@pytest.mark.parametrize(
    ("text", "content"),
    [
        ("I don't drive.", "The user does not drive"),
        ("I don't speak French.", "The user does not speak French"),
        ("I quit smoking in 2019", "The user quit smoking"),
        ("I have MS.", "The user has MS"),
        ("I have ADD.", "The user has ADD"),
    ],
)
def test_general_habits_are_learned(text: str, content: str) -> None:
    found = [each.content for each in extract_statements(text)]
    assert any(each.startswith(content) for each in found), found
