"""Memories of three people, questions about them with and without an answer, and everyday requests.

The requests need no memory at all: nothing of it should get into their prompt. All was written for
``bench/floor.py`` before the score was calibrated.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Person:
    """``memories`` are lines "category | subject | content", numbered from 1.

    ``questions`` are lines "numbers of the memories that answer it | question".
    """

    name: str
    memories: str
    turns: str
    questions: str
    unanswerable: str


INGRID = Person(
    "ingrid",
    memories="""
person | Jonas | Jonas is my son, he is nine and plays handball for Fyllingen
person | Freya | Our daughter, born on 3 May 2019, allergic to walnuts
person | Lars | My husband Lars works offshore, two weeks on and four weeks off
person | Dr. Haugen | Our family doctor, her practice is at Danmarks plass, phone 55 21 30 40
person | Mum | Lives in Voss, her birthday is the 14th of February
person | Siri | Best friend since school, moved to Tromsø last autumn
work | | I am a nurse on the surgical ward at Haukeland hospital
work | | Night shifts are every third week, from 22:00 to 07:30
work | Marit | Marit is the head of the ward and approves my holidays
health | | I get migraine from red wine and from strobe lights
health | | I take 50 mg of sumatriptan when a migraine starts
health | | Last tetanus shot was in June 2024
food | | I have not eaten pork since I was twelve
food | | Freya eats nothing that is green except cucumber
food | Friday | On Fridays we make pizza together, the dough rests overnight
home | | We live at Nattlandsveien 84 in Bergen, third floor
home | heating | The heat pump was repaired by Nilsen VVS in January, three years of warranty
home | mortgage | The mortgage rate is fixed at 4.1 percent until 2028
home | | The spare key is with Mrs. Olsen on the ground floor
home | wifi | The network is called Fjordfuglen, the password hangs inside the fuse box
car | | We drive a grey Skoda Enyaq, registration EK 50317
car | | Winter tyres are stored at Vianor in Åsane
car | | The car goes to its service in March every year
travel | hotel | Hotel in Lisbon from 12 to 19 July, booking code QX7-221
travel | | We fly with Widerøe because Jonas gets sick in big planes
travel | | My passport expires in November 2027
preference | | I hate phone calls and would rather get a message
preference | | I read crime novels before I sleep, mostly Jørn Lier Horst
preference | music | Likes Sigrid and old Motown, no heavy metal
hobby | | I swim a thousand metres at Nordnes sjøbad on Tuesdays
hobby | | I knit a sweater for Lars in Hillesvåg wool, size L
hobby | choir | I sing alto in the choir Sangria, rehearsals on Wednesdays at seven
school | | Jonas goes to Slettebakken skole, class 4B
school | Ms. Berge | Teacher of class 4B, prefers e-mail
school | | School closes for the autumn break in week 41
money | | We put 3,000 kroner a month into the savings account of the children
money | insurance | House insurance is with Tryg, policy 7781 2209
pet | Pus | Our cat, neutered, eats only the dry food of Royal Canin
pet | | The vet is AniCura at Lagunen
plan | | Next year we want to build a sauna at the cabin in Hardanger
plan | cabin | The cabin has no running water, drinking water comes from the brook
language | | I speak Norwegian, English and some German
gift | | Lars wishes for a drill by Makita for Christmas
gift | Mum | Mum already has the book by Helene Flood
""",
    turns="""
What may I cook on Friday?
OK.
thanks
We decided on oak boards for the terrace, the pine ones rot too fast.
The plumber comes on the 9th of December between eight and ten.
Which wood did we pick for the terrace?
Jonas scored his first goal against Gneist yesterday!
parallel chat 3
I forgot to tell you that the choir concert was moved to the Grieghallen.
My sister Mia visits on Friday and she eats no meat.
How is the weather in Voss?
""",
    questions="""
1 | how old is my son?
1 | which sport does Jonas play?
2 | when was Freya born?
2 | what is my daughter allergic to?
3 | where does my husband work?
3 | how long is Lars away at a time?
4 | what's the number of our doctor?
5 | when is my mother's birthday?
6 | who moved to Tromsø?
7 | what do I do for a living?
7 | at which hospital do I work?
8 | when do my night shifts start?
9 | who approves my holidays?
10 | what gives me a migraine?
11 | which medicine do I take against migraine?
12 | when was my last tetanus shot?
13 | do I eat pork?
14 | which vegetable does Freya like?
15 | what do we eat on Fridays?
16 | what is our address?
17 | who fixed the heating?
17 | how long is the warranty of the heat pump?
18 | what interest do we pay for the house?
19 | who has our spare key?
20 | where is the wifi password?
21 | what's the registration of our car?
22 | where are the winter tyres?
23 | when is the car serviced?
24 | what is the booking code of the hotel in Lisbon?
24 | when are we in Portugal?
25 | why do we fly with Widerøe?
26 | until when is my passport valid?
27 | how should people contact me?
28 | what book do I read in the evening?
29 | what music do I like?
30 | when do I go swimming?
31 | for whom am I knitting a sweater?
32 | on which day is choir practice?
33 | which school does Jonas attend?
34 | who teaches class 4B?
35 | when is the autumn break?
36 | how much do we save for the children each month?
37 | what is the number of our insurance policy?
38 | what does the cat eat?
39 | which vet do we go to?
40 | what do we want to build at the cabin?
41 | is there tap water at the cabin?
42 | which languages do I speak?
43 | what does my husband want for Christmas?
44 | which book should I not give to my mother?
""",
    unanswerable="""
which phone do I have?
what is the name of my boss's wife?
when did I graduate?
what is my blood type?
which bank are we with?
what colour is our sofa?
how tall is Lars?
what did I pay for the bicycle?
who is our dentist?
what is the name of my first teacher?
which gym do I go to?
where did we spend our honeymoon?
what size are Freya's shoes?
how much do I earn?
when is my wedding anniversary?
which newspaper do I subscribe to?
what is the licence key of my photo software?
who won the bet about the election?
what is my favourite film?
when did grandfather die?
which energy company do we use?
what was the result of my blood test?
where did I park the boat?
how many pupils are in the class of Freya?
what did the lawyer say about the inheritance?
""",
)

TOMAS = Person(
    "tomas",
    memories="""
project | Heron | Heron is our billing service, written in Go, deployed to Kubernetes in Frankfurt
project | Heron | Releases of Heron go out on Tuesdays after the standup
project | Kestrel | The data warehouse, Kestrel, runs on ClickHouse and is owned by Priya's team
project | | We chose PostgreSQL over MySQL for billing because of partial indexes
decision | logging | Structured logs with slog, no third-party logger
decision | | Feature flags live in the repository flags-config, never in the database
decision | retries | Retries use exponential backoff with a cap of 30 seconds
convention | | Branch names start with the ticket number, such as BIL-482-refund-rounding
convention | | Money is stored in integer cents, never in floats
convention | | Tests that need Docker carry the build tag integration
person | Priya | Priya leads the data team and sits in Bangalore
person | Marek | Marek is my manager, one-on-one every second Thursday at 14:00
person | Julia | Julia from finance signs off every change of the invoice layout
person | Ondra | Ondra reviews everything that touches authentication
incident | | Double charges on 11 March came from a missing idempotency key in the refunds
incident | | The outage of 2 September was caused by an expired certificate of the queue
infra | staging | Staging is reset every night at 02:00 UTC
infra | | Production secrets are in Vault under kv/billing
infra | runners | Our CI has twelve self-hosted runners, four of them with ARM
infra | | Grafana dashboards are at grafana.int.example.net under Billing
tool | | I use Helix as my editor with the theme Nord
tool | | My shell is fish, the dotfiles are in the repository dots
tool | keyboard | I type on a split keyboard with the Colemak layout
preference | | Answer in Czech when I write Czech, otherwise in English
preference | | I like short answers with a code sample first
preference | | No emojis in commit messages
preference | meetings | No meetings before ten, I do my deep work in the morning
api | | The public API is versioned by date, the current version is 2026-05-01
api | rate limit | Customers may send 100 requests per second, burst 300
api | webhooks | Webhooks are signed with HMAC SHA-256 in the header X-Heron-Signature
customer | Lumio | Lumio is our largest customer and pays in yen
customer | Brightside | Brightside still uses API version 2024-11-15 until the end of the year
deadline | | The audit for SOC 2 begins on 18 January
deadline | | Migration to the new tax engine must be finished before April
personal | | I live in Brno and work from home on Mondays and Fridays
personal | | My daughter Eliška starts school in September
personal | | I play badminton on Thursday evenings
glossary | dunning | Dunning is how we remind customers of unpaid invoices, by mail, then a block
glossary | GMV | GMV means gross merchandise volume, what our merchants sell in total
glossary | golden path | The template of a service that the platform team maintains
bug | | Rounding of Japanese yen is wrong because the ledger assumes two decimals
bug | | Flaky test TestRefundTwice depends on the order of map iteration
""",
    turns="""
hi
Can you look at the refund worker again?
I renamed the table ledger_lines to ledger_entries in the migration of today.
ok thx
The load test reached 4,200 requests per second before the pool of connections was exhausted.
What was the cap for retries?
We agreed with Julia to print the VAT id in the footer of each invoice.
new chat
Does Go have enums?
👍
Marek is on parental leave from December, Hana stands in for him.
""",
    questions="""
1 | in which language is the billing service written?
1 | where does Heron run?
2 | when do we release Heron?
3 | which database does the warehouse use?
3,11 | who owns Kestrel?
4 | why did we pick PostgreSQL?
5 | which logging library do we use?
6 | where do feature flags live?
7 | what is the longest delay between retries?
8 | how do we name branches?
9 | how is money stored?
10 | what tag do tests with Docker have?
11 | where does Priya sit?
12 | when is my one-on-one?
12 | who is my manager?
13 | who has to approve a new invoice layout?
14 | who reviews changes of the login?
15 | why were customers charged twice in March?
16 | what caused the outage in September?
17 | when is staging reset?
18 | where are the production secrets?
19 | how many CI runners do we have?
20 | where are the dashboards for billing?
21 | which editor do I use?
22 | which shell do I use?
23 | what keyboard layout do I type on?
24 | in which language should you answer me?
25 | how do I like answers?
26 | may I use emojis in commits?
27 | when should nobody book a meeting with me?
28 | what is the current version of the API?
29 | what is the rate limit for customers?
30 | how are webhooks signed?
31 | in which currency does Lumio pay?
32 | which customer is on an old API version?
33 | when does the audit begin?
34 | what is the deadline of the tax migration?
35 | in which city do I live?
35 | on which days do I work from home?
36 | when does my daughter start school?
37 | which sport do I do on Thursdays?
38 | what is dunning?
39 | what does GMV mean?
40 | what is the golden path?
41 | which bug do we have with yen?
42 | which test is flaky?
""",
    unanswerable="""
what is the root password of the database?
who is the CEO of Lumio?
which version of Go do we compile with?
how many customers do we have?
what is the SLA for the webhook delivery?
when was the company founded?
who designed the logo?
what is the budget of the data team?
which linter do we use for TypeScript?
what did the pen test find?
where is the office in Prague?
how long do we keep backups?
who is on call this week?
what is my employee number?
which queue system did we use before?
when does the contract with AWS end?
which font is on the invoice?
what is the name of my dog?
who wrote the fraud detection?
how do I reset my VPN token?
what was the churn last quarter?
which conference did I speak at?
what is the port of the metrics endpoint?
how many days of vacation do I have left?
what did Marek say about the promotion?
""",
)

DELIA = Person(
    "delia",
    memories="""
person | Bob Miller | Likes jazz and collects records from the fifties
person | Eva Lind | Prefers tea over coffee, never before noon
person | Carla Ruiz | Works at the harbour office and cycles there
person | Henry | My grandson, studies chemistry in Leeds
person | Aunt Rosa | Turns ninety in August, deaf on the left ear
person | Mr. Patel | Runs the pharmacy on the corner and orders my inhaler
health | inhaler | Salbutamol, two puffs before exercise
health | | Penicillin gives me a rash
health | knee | The left knee was operated on in 2021, no kneeling
health | | My glasses are minus 2.5 on both sides
garden | | The dahlias are dug up in October and kept in the cellar in sand
garden | roses | The red rose by the gate is a Ingrid Bergman, pruned in March
garden | | Slugs do not touch the fuchsias, but they love the hostas
garden | compost | Turn the compost on the first Sunday of the month
kitchen | | Grandmother's plum cake takes eight eggs and no baking powder
kitchen | | My oven is ten degrees too hot
kitchen | marmalade | Seville oranges come in late January, order ten kilos at Wilson's
home | boiler | The boiler is a Vaillant from 2016, serviced by Tony each September
home | | The burglar alarm is switched off with the code of my first telephone number
home | bins | Green bin on Monday, black bin every second Thursday
home | | The piano is tuned by Mrs. Whitfield in spring and autumn
money | | My pension arrives on the 25th
money | | I gave Henry a loan of 1,200 pounds for his car, he pays back fifty a month
money | taxes | Taxes are done by Simmons & Co., deadline 31 January
travel | | In May I go to Madeira with Eva, two weeks
travel | | I get seasick, therefore no ferries
travel | | The suitcase with the broken wheel goes to the tip
club | bridge | Bridge is on Monday afternoons at Carla's
club | | I am the treasurer of the choir since 2019
club | book club | We read Middlemarch until the end of the month
history | | I was born in Falmouth and came to Bristol in 1968
history | | I taught geography at Colston's for thirty-one years
history | wedding | We married on 6 June 1970 in Clifton
television | | I record the gardening programme on Friday evenings
preference | | No onions in anything, please
preference | | Write large letters, I read on the tablet
preference | | I like to be called Dee
car | | I gave up driving after the eye operation and take the bus 76
computer | | Henry set up the tablet, its code is the year of the moon landing
computer | printer | The printer only works when it was switched off and on again
""",
    turns="""
Good morning!
The window cleaner raised his price to eighteen pounds.
Thank you, dear.
What was that about the slugs?
I met Carla at the market, her hip operation is on the 4th of November.
yes
The new neighbour at number 12 is called Oluwaseun and plays the cello.
Could you tell me a joke?
I have put the will into the blue folder in the bureau.
test
""",
    questions="""
1 | tell me about Bob Miller
1 | who likes jazz?
2 | what does Eva drink?
3 | where does Carla work?
3 | Carla
4 | what does Henry study?
5 | how old will Aunt Rosa be in August?
5 | on which ear is Rosa deaf?
6 | who orders my inhaler?
7 | what is in my inhaler?
8 | which medicine must I not take?
9 | when was my knee operated on?
10 | how strong are my glasses?
11 | how do I keep the dahlias over the winter?
12 | which rose grows by the gate?
13 | which plants do slugs leave alone?
14 | when do I turn the compost?
15 | how many eggs go into the plum cake?
16 | is my oven too hot?
17 | when do Seville oranges arrive?
18 | who services the boiler?
18 | what make is the boiler?
19 | how do I switch off the alarm?
20 | when is the green bin collected?
21 | who tunes the piano?
22 | when does my pension come?
23 | how much did I lend to Henry?
24 | who does my taxes?
25 | where do I go in May?
25 | with whom do I travel to Madeira?
26 | why do I not take the ferry?
27 | which suitcase is broken?
28 | when do we play bridge?
29 | what is my office in the choir?
30 | what are we reading in the book club?
31 | where was I born?
31 | when did I come to Bristol?
32 | what did I teach?
33 | when did we marry?
34 | what do I record on Fridays?
35 | what must not be in my food?
36 | how should you write to me?
37 | what do my friends call me?
38 | which bus do I take?
39 | what is the code of the tablet?
40 | what helps when the printer does not work?
""",
    unanswerable="""
what is the name of my late husband's ship?
which church do I go to?
when is Eva's birthday?
what did the solicitor charge?
how much is my rent?
who is my optician?
what is the password of my e-mail?
which hotel do we stay at in Madeira?
what is the telephone number of Henry?
who repaired the roof?
when was the last bowel screening?
what kind of dog does Bob have?
how many grandchildren do I have?
which shares do I own?
what did I order from the catalogue?
where did I buy the curtains?
what is my national insurance number?
when is the next meeting of the council?
which wine did we drink at Christmas?
who feeds the parrot?
what was the diagnosis of the cardiologist?
which newspaper does Eva read?
when does my library card expire?
what is the name of the new vicar?
how heavy was Henry at birth?
""",
)

PEOPLE = (INGRID, TOMAS, DELIA)

# Nothing that is known of a person helps with these.
REQUESTS = """
write a haiku about autumn
write a poem about the sea
write a limerick about a cat
write a short story about a dragon who is afraid of fire
write a cover letter for a warehouse job
write a wedding speech for the best man
write an e-mail that declines an invitation politely
write a product description for a bamboo toothbrush
write a birthday wish in rhyme
write a press release about a new bicycle lane
write a python function that reverses a string
write a regex that matches an IPv4 address
write a bash one-liner that counts files
write a SQL query that returns duplicates
write unit tests for a stack
translate "good morning" to Japanese
translate this sentence into French: the train is late
translate "where is the station" into Polish
how do you say thank you in Swahili?
what is the German word for butterfly?
what does carpe diem mean?
calculate 17 * 23
what is 15 percent of 240?
what is the square root of 1764?
convert 100 fahrenheit to celsius
how many ounces are in a pound?
how many seconds are in a day?
what is 2 to the power of 16?
solve 3x + 5 = 20
what is the derivative of x squared?
what is the capital of Mongolia?
what is the largest planet?
who wrote Don Quixote?
who painted the Mona Lisa?
when did the Second World War end?
when was the Eiffel Tower built?
how far is the moon from the earth?
how high is Mount Everest?
why is the sky blue?
why do cats purr?
how does a fridge work?
how does photosynthesis work?
how do vaccines work?
how do bees make honey?
what is the speed of light?
what is the boiling point of water?
what is entropy?
what is a black hole?
what is inflation?
what is a monad?
what is machine learning?
what is blockchain?
what is quantum computing?
explain the theory of relativity to a child
explain the difference between TCP and UDP
explain how a bill becomes a law
explain big O notation
explain recursion
summarise the plot of Hamlet
summarise the following text: The industrial revolution changed how goods were made.
give me a list of ten synonyms for happy
give me three names for a startup that sells umbrellas
give me a riddle
give me a random number between one and ten
tell me a joke
tell me a fun fact
tell me something about the Roman empire
tell me about penguins
sing me a song
let's play twenty questions
play a word game with me
hello
hi there
good morning
good night
how are you?
how are you doing today?
who are you?
what can you do?
are you a robot?
which model are you?
thanks
thank you so much
ok
okay, got it
great
sounds good
yes
no
sure
bye
see you later
lol
that's funny
never mind
stop
go on
continue
try again
make it shorter
make it more formal
fix the grammar: he go to school yesterday
correct my spelling: definately, recieve, seperate
rephrase this: the meeting was bad
shorten this paragraph to one sentence: Rain fell all day and the streets were empty.
what is the plural of octopus?
what rhymes with orange?
spell accommodation
what is the opposite of generous?
use the word serendipity in a sentence
is "irregardless" a word?
what's a good synonym for important?
how do I center a div?
how do I exit vim?
how do I undo the last git commit?
how do I sort a list in python?
how do I merge two dictionaries in python?
how do I read a file in rust?
how do I install docker on ubuntu?
how do I rename a column in SQL?
what does the error "segmentation fault" mean?
what is the difference between let and const in javascript?
convert this JSON to YAML: {"a": 1}
generate a uuid
generate a strong password
generate lorem ipsum
draw an ascii cat
what time is it in Tokyo?
what is today's date?
what day of the week was 1 January 2000?
what is the weather like in Paris?
what's in the news?
who won the world cup in 2018?
what is the population of Brazil?
which countries border Switzerland?
name the planets of the solar system
name five vegetables that start with c
list the colours of the rainbow
how do I boil an egg?
how long does pasta cook?
how do I get red wine out of a carpet?
how do I tie a tie?
how do I change a bicycle tube?
how do I fold a paper plane?
how do I remove a splinter?
how many calories does an apple have?
can dogs eat chocolate?
is a tomato a fruit?
what is the best way to learn the guitar?
how can I concentrate better?
how do I fall asleep faster?
recommend a classic science fiction film
recommend a board game for four players
suggest a name for a goldfish
suggest a topic for a five-minute talk
what should I draw?
which is better, tabs or spaces?
what are the pros and cons of electric cars?
compare iOS and Android
describe the taste of cinnamon
describe a sunset without using colours
roleplay as a medieval innkeeper
pretend you are a pirate
act as an interviewer for a job as a baker
brainstorm ideas for a children's party about space
plan a three-day trip to Rome
make a workout plan for beginners
make a shopping list for pancakes
make a multiple choice quiz about volcanoes
create a slogan for a coffee shop
create a table of the metric prefixes
count from one to twenty
reverse the word banana
sort these numbers: 5, 3, 9, 1
find the odd one out: apple, pear, carrot, plum
what comes next: 2, 4, 8, 16?
is 97 a prime number?
flip a coin
roll two dice
🎉
😂😂
"""


def lines(table: str) -> list[str]:
    """The lines of a table."""
    return [line for line in table.strip().splitlines() if line]


def memories(person: Person) -> list[tuple[str, str | None, str]]:
    """Category, subject and content of each memory."""
    rows = [[part.strip() for part in line.split("|", 2)] for line in lines(person.memories)]
    return [(category, subject or None, content) for category, subject, content in rows]


def questions(person: Person) -> list[tuple[str, tuple[int, ...]]]:
    """Each question with the places of the memories that answer it, from 0 on."""
    rows = [line.split(" | ", 1) for line in lines(person.questions)]
    return [(text, tuple(int(number) - 1 for number in gold.split(","))) for gold, text in rows]
