"""Words that the rules know: kin, animals, occupations, conditions, languages, activities, dates.

A relation takes only values of its own list, or names, so that "I'm a nurse" is read and "I'm a
mess" is not. Entries are in lower case; an entry of several words is matched as a whole.
"""

from __future__ import annotations


def words(text: str) -> frozenset[str]:
    """Return the words of a text."""
    return frozenset(text.split())


def phrases(text: str) -> frozenset[str]:
    """Return the entries of a text, separated by commas or line ends."""
    entries = (each.strip() for line in text.splitlines() for each in line.split(","))
    return frozenset(each for each in entries if each)


# -- people and animals ---------------------------------------------------------------------------

# Whom a person has one of: a new name replaces the old one.
SINGLE_KIN = phrases("""
    wife, husband, partner, spouse, fiancé, fiancée, fiance, fiancee, girlfriend, boyfriend, gf
    bf, mother, father, mom, mum, dad, boss, manager, line manager, supervisor, landlord, landlady
""")
MANY_KIN = phrases("""
    sister, brother, daughter, son, kid, child, baby, newborn, toddler, twin, friend, mate, buddy
    colleague, coworker, co-worker, neighbour, neighbor, roommate, flatmate, housemate, aunt
    uncle, cousin, niece, nephew, grandmother, grandfather, grandma, grandpa, gran, granddad
    granny, nan, nana, gramps, roomie
    grandson, granddaughter, grandchild, godson, goddaughter, godmother, godfather, stepson
    stepdaughter, stepmother, stepfather, stepmum, stepdad, stepbrother, stepsister, half-sister
    half-brother, brother-in-law, sister-in-law, mother-in-law, father-in-law, son-in-law
    daughter-in-law, doctor, gp, dentist, therapist, physio, physiotherapist, psychologist
    psychiatrist, cardiologist, dermatologist, neurologist, gynaecologist, gynecologist
    paediatrician, pediatrician, oncologist, surgeon, midwife, nurse, vet, optician, teacher
    tutor, coach, trainer, personal trainer, mentor, lawyer, solicitor, accountant, tax advisor
    hairdresser, barber, nanny, babysitter, cleaner, gardener, mechanic, assistant, intern
    student, professor, client, teammate, au pair, carer
""")
ANIMALS = words("""
    dog cat puppy kitten pup kitty rabbit bunny hamster horse pony parrot budgie canary cockatiel
    tortoise turtle goldfish snake lizard gecko ferret rat mouse hen chicken duck goat sheep cow
    pig donkey hedgehog chinchilla gerbil iguana python tarantula guinea-pig pet tabby poodle
    labrador lab retriever terrier spaniel collie corgi beagle bulldog dachshund husky shepherd
    labradoodle cockapoo pug chihuahua greyhound whippet boxer rottweiler dalmatian mastiff
    schnauzer setter hound mutt siamese persian ragdoll bengal coon shorthair sphynx tomcat mare
    stallion gelding foal cockerel rooster bee alpaca llama axolotl fish guinea
""")
# Whom a person has, so that it says something without a name: "I have a son".
CLOSE_KIN = words("""
    son daughter kid child baby newborn toddler twin sister brother wife husband partner
    girlfriend boyfriend fiancé fiancée grandson granddaughter grandchild stepson stepdaughter
    half-sister half-brother stepbrother stepsister dog cat puppy kitten rabbit hamster horse pony
    parrot budgie tortoise labrador retriever terrier spaniel corgi beagle dachshund poodle collie
    husky
""")
PLURAL_KIN = phrases("""
    parents, grandparents, kids, children, sons, daughters, sisters, brothers, twins, siblings
    grandchildren, grandkids, triplets, in-laws, boys, girls, stepchildren
""")
PLURAL_ANIMALS = words("""
    dogs cats puppies kittens rabbits hamsters horses ponies parrots budgies tortoises hens
    chickens ducks goats sheep cows pigs bees alpacas guinea-pigs snakes ferrets fish pets geese
    donkeys llamas
""")
FEMALE = words("""
    wife girlfriend gf fiancée fiancee mother mom mum sister daughter aunt niece grandmother
    grandma granny nan nana gran granddaughter goddaughter godmother stepdaughter stepmother
    stepmum stepsister half-sister sister-in-law mother-in-law daughter-in-law landlady girl
""")
MALE = words("""
    husband boyfriend bf fiancé fiance father dad brother son uncle nephew grandfather grandpa
    granddad grandson godson godfather stepson stepfather stepdad stepbrother half-brother
    brother-in-law father-in-law son-in-law landlord boy
""")
# They call and come round as people do, but are none.
NOT_PEOPLE = words("""
    amazon apple disney facebook fedex ikea lufthansa microsoft netflix nokia oracle paypal ryanair
    samsung santa siemens sony spotify telekom twitter uber ups verizon visa vodafone whatsapp
    zalando spring summer autumn winter christmas easter eid diwali hanukkah ramadan halloween
    thanksgiving passover dr mr mrs ms mx prof mail post lunch dinner breakfast rain snow customs
    police security support sales marketing hr
""")
# Written with a capital letter before a name because a sentence starts with them: "Then Tom".
OPENERS = words("""
    after again afterwards actually although apparently are as because before can could did do does
    earlier even eventually finally fortunately had has have hopefully if instead is let luckily
    meanwhile may might must often once only possibly presumably probably really recently should
    since sometimes soon strangely suddenly surprisingly then though unless until usually was were
    whenever whether while will would
""")

# -- what somebody is -----------------------------------------------------------------------------

DIETS = phrases("""
    vegetarian, vegan, pescatarian, pescetarian, flexitarian, lacto-vegetarian, fruitarian
    gluten free, gluten-free, dairy free, dairy-free, keto, low-carb, plant-based, halal, kosher
    paleo, raw vegan, low-fodmap, sugar-free, meat-free, teetotal, carnivore, mediterranean
""")
HEALTH_TRAITS = phrases("""
    diabetic, prediabetic, asthmatic, epileptic, dyslexic, dyspraxic, autistic, neurodivergent
    pregnant, lactose intolerant, lactose-intolerant, gluten intolerant, gluten-intolerant
    fructose intolerant, histamine intolerant, coeliac, celiac, colour blind, color blind
    colour-blind, color-blind, colourblind, colorblind, deaf, blind, partially sighted
    left-handed, right-handed, left handed, ambidextrous, short-sighted, shortsighted
    near-sighted, nearsighted, far-sighted, farsighted, hard of hearing, anaemic, anemic, bipolar
    immunocompromised, breastfeeding, paraplegic, wheelchair-bound, claustrophobic, arachnophobic
    hypertensive, arthritic, trans, transgender, gay, lesbian, bisexual, nonbinary, non-binary
    asexual, queer, insulin dependent, deaf in one ear, smoker, non-smoker, nonsmoker
    type 1 diabetic, type 2 diabetic
""")
MARITAL_STATES = words("married single divorced widowed engaged separated")
WORK_STATES = phrases("""
    retired, unemployed, self-employed, self employed, semi-retired, jobless, between jobs
    freelance, on maternity leave, on paternity leave, on parental leave, on sick leave
    on sabbatical, on a sabbatical, out of work
""")
TEMPERAMENTS = phrases("""
    morning person, night person, night owl, early bird, early riser, introvert, extrovert
    extravert, ambivert, people person, dog person, cat person, tea person, coffee person
    homebody, minimalist, perfectionist, vegetable person, foodie, light sleeper, heavy sleeper
    slow reader, picky eater, visual learner, tea drinker, coffee drinker
""")
RELIGIONS = words("""
    muslim christian catholic protestant jewish hindu buddhist sikh mormon orthodox atheist
    agnostic quaker lutheran anglican methodist baptist pagan evangelical presbyterian jain
""")
NATIONALITIES = words("""
    afghan albanian algerian angolan armenian azerbaijani bahamian bahraini barbadian bavarian
    bengali beninese bhutanese botswanan breton burmese burundian californian caribbean chadian
    chechen comorian corsican dominican emirati eritrean fijian gabonese galician gambian guinean
    guyanese hawaiian honduran ivorian kashmiri kiwi kosovan kuwaiti kyrgyz laotian liberian
    malagasy malawian malian mauritanian mauritian montenegrin mozambican namibian nicaraguan
    omani paraguayan punjabi qatari salvadoran samoan sardinian sicilian somalian surinamese tajik
    tamil tatar texan togolese tongan trinidadian turkmen tyrolean vietnamese welsh yemeni zambian
    zimbabwean
    american arab argentinian argentine asian australian austrian bangladeshi basque belarusian
    belgian bolivian bosnian brazilian british bulgarian cambodian cameroonian canadian catalan
    chilean chinese colombian congolese croatian cuban cypriot czech danish dutch ecuadorian
    egyptian english estonian ethiopian european filipino finnish flemish french frisian georgian
    german ghanaian greek guatemalan haitian hungarian icelandic indian indonesian iranian iraqi
    irish israeli italian jamaican japanese jordanian kazakh kenyan korean kurdish latino latina
    latvian lebanese libyan lithuanian luxembourgish macedonian malaysian maltese mexican moldovan
    mongolian moroccan nepali nepalese nigerian norwegian pakistani palestinian panamanian persian
    peruvian polish portuguese romanian russian rwandan saudi scottish senegalese serbian
    singaporean slovak slovakian slovenian somali spanish sudanese swedish swiss syrian taiwanese
    tanzanian thai tibetan tunisian turkish ugandan ukrainian uruguayan uzbek venezuelan
    vietnamese welsh yemeni zambian zimbabwean
""")
LANGUAGES = words("""
    afrikaans albanian amharic arabic armenian azerbaijani basque belarusian bengali bosnian
    breton bulgarian burmese cantonese catalan cebuano chinese cornish creole croatian czech
    danish dari dutch english esperanto estonian faroese farsi filipino finnish flemish french
    frisian gaelic galician georgian german greek guarani gujarati hausa hawaiian hebrew hindi
    hungarian icelandic igbo indonesian irish italian japanese javanese kannada kazakh khmer
    korean kurdish lao latin latvian lithuanian luxembourgish macedonian malay malayalam maltese
    mandarin maori marathi mongolian navajo nepali norwegian occitan pashto persian polish
    portuguese punjabi quechua romanian russian sami samoan sanskrit serbian sinhala slovak
    slovenian somali spanish swahili swedish tagalog tamil telugu thai tibetan tigrinya turkish
    ukrainian urdu uzbek vietnamese welsh wolof xhosa yiddish yoruba zulu asl bsl
""")
# The last word of an occupation; any words may qualify it: "freelance illustrator".
OCCUPATIONS = words("""
    accountant actor actress actuary administrator adviser advisor agent agronomist analyst
    anaesthetist anesthesiologist animator anthropologist apprentice archaeologist archeologist
    architect archivist artist assistant astronomer astrophysicist attorney auditor author baker
    banker barber barista barman barmaid bartender biochemist bioinformatician biologist
    blacksmith bookkeeper bookseller botanist brewer bricklayer broker builder butcher buyer
    cameraman caregiver caretaker carer carpenter cartographer cartoonist cashier ceo cfo chaplain
    chauffeur chef chemist childminder chiropractor cleaner clerk coder columnist comedian
    composer conductor conservator consultant contractor controller coo cook cop copywriter
    coroner cosmetologist counsellor counselor courier cto curator dancer dentist dermatologist
    designer detective developer dietician dietitian diplomat director dishwasher diver docent
    doctor doorman driver ecologist economist editor educator electrician engineer entrepreneur
    epidemiologist ergotherapist farmer farrier filmmaker firefighter fisherman florist founder
    forester gardener geneticist geographer geologist glazier goldsmith grocer guard gynaecologist
    gynecologist hairdresser handyman historian homemaker housekeeper housewife hydrologist
    illustrator immunologist influencer inspector instructor intern interpreter investigator
    investor janitor jeweller jeweler joiner journalist judge keeper laborer labourer landscaper
    lawyer lecturer librarian lifeguard lineman linguist locksmith lumberjack machinist magician
    manager manufacturer mason mathematician mechanic mediator medic merchandiser meteorologist
    microbiologist midwife miner minister model musician nanny neurologist neuroscientist
    neurosurgeon notary novelist nurse nutritionist obstetrician officer oncologist operator
    ophthalmologist optician optometrist orthodontist osteopath paediatrician painter paralegal
    paramedic pastor pathologist pediatrician pharmacist philosopher phlebotomist photographer
    physician physicist physio physiotherapist pianist pilot planner plasterer plumber podiatrist
    poet policeman policewoman politician porter postdoc postman potter priest principal producer
    professor programmer psychiatrist psychologist psychotherapist publisher rabbi radiographer
    radiologist ranger realtor receptionist recruiter referee reporter representative researcher
    roofer sailor salesman salesperson saleswoman scaffolder scholar scientist sculptor seamstress
    secretary shepherd shipwright shopkeeper singer skipper sociologist soldier solicitor
    specialist statistician steward stewardess stonemason student stylist sunday-school
    superintendent supervisor surgeon surveyor tailor tattooist teacher technician technologist
    teller tester therapist tiler toolmaker trader trainee trainer translator treasurer
    truckdriver trucker tutor typist umpire undertaker upholsterer urologist usher valet vet
    veterinarian vicar videographer violinist virologist waiter waitress warden watchmaker weaver
    webmaster welder winemaker woodworker writer yoga-teacher zoologist zookeeper lead pensioner
    freelancer sysadmin devops undergraduate grad postgrad phd-student stay-at-home-dad
""")
# What stands before it is a person's quality, not their occupation: "a fast learner".
NOT_OCCUPATION_QUALIFIERS = words("""
    bad good great terrible lousy decent amazing fantastic wannabe aspiring would-be failed former
    ex fake pretend closet armchair natural born real true poor master fellow fictional virtual
    future hopeless awful better best worse secret lazy typical total complete huge big frustrated
    backseat glorified human cat dog slow fast quick heavy avid passionate careful shooting point
    my your his her their
""")
FAMILY_ROLES = words("""
    mother father mom mum dad grandmother grandfather grandma grandpa aunt uncle widow widower
    twin orphan parent stepmother stepfather godmother godfather
""")

# -- health ---------------------------------------------------------------------------------------

CONDITIONS = phrases("""
    asthma, diabetes, epilepsy, adhd, add, autism, arthritis, migraine, migraines, hay fever
    hayfever, high blood pressure, low blood pressure, hypertension, depression, anxiety, dementia
    alzheimer's, parkinson's, dyslexia, dyspraxia, cancer, copd, ibs, pcos, endometriosis, eczema
    psoriasis, insomnia, sleep apnea, sleep apnoea, tinnitus, vertigo, anaemia, anemia
    osteoporosis, scoliosis, sciatica, gout, lupus, fibromyalgia, long covid, crohn's, crohns
    celiac, coeliac, ms, ocd, ptsd, bipolar, glaucoma, hypothyroidism, hyperthyroidism, gerd
    acid reflux, high cholesterol, hemophilia, haemophilia, leukaemia, leukemia, a pacemaker
    a stoma, back problems, heart problems, a heart murmur, a slipped disc, a herniated disc
    a hernia, chronic fatigue, cystic fibrosis, rosacea, shingles, varicose veins, cataracts
    an ulcer, a stomach ulcer, gestational diabetes, narcolepsy, a prosthetic leg, a weak heart
    a thyroid problem, a thyroid condition, a heart condition, a skin condition, a lung condition
    diverticulitis, kidney stones
""")
CONDITION_HEADS = words("""
    disease syndrome disorder allergy intolerance diabetes pain cancer arthritis migraines
    deficiency allergies sclerosis colitis palsy dystrophy
""")
INJURIES = words("knee back hip shoulder ankle wrist neck elbow leg arm foot rib collarbone")
MEDICINES = phrases("""
    insulin, aspirin, blood thinners, antidepressants, beta blockers, beta-blockers, statins
    the pill, birth control, antihistamines, antibiotics, steroids, iron supplements, iron tablets
    vitamin d, vitamin b12, lithium, warfarin, methotrexate, ritalin, adderall, prozac, zoloft
    ozempic, wegovy, blood pressure medication, blood pressure tablets, thyroid medication
    sleeping pills, painkillers, hrt, immunosuppressants, ssris, levothyroxine, metformin
    ibuprofen, paracetamol, xanax, valium, lisdexamfetamine, concerta, gabapentin, pregabalin
    omeprazole, prednisone, cortisone, melatonin
""")
MEDICINE_ENDINGS = (
    *("pril", "sartan", "statin", "formin", "prazole", "oxetine", "zepam", "zolam", "cillin"),
    *("mycin", "thyroxine", "lukast", "olol", "dipine", "gliptin", "zumab", "limumab", "profen"),
    *("triptan", "parin", "xaban", "azepine", "cycline", "gliflozin", "glutide", "traline"),
)

# -- what somebody does ---------------------------------------------------------------------------

GAMES = phrases("""
    piano, guitar, violin, viola, cello, bass, double bass, drums, flute, clarinet, saxophone, sax
    trumpet, trombone, tuba, horn, french horn, oboe, bassoon, harp, accordion, banjo, ukulele
    mandolin, recorder, organ, harmonica, bagpipes, keyboard, keyboards, percussion, sitar, fiddle
    harpsichord, electric guitar, bass guitar, acoustic guitar, synth, lute, bouzouki, didgeridoo
    football, soccer, basketball, volleyball, beach volleyball, handball, tennis, table tennis
    ping pong, badminton, squash, padel, golf, disc golf, hockey, ice hockey, field hockey
    baseball, softball, cricket, rugby, lacrosse, water polo, polo, netball, floorball, darts
    pool, snooker, billiards, bowls, petanque, boules, ultimate frisbee, ultimate, paintball
    chess, go, poker, bridge, backgammon, scrabble, checkers, mahjong, sudoku, board games
    video games, computer games, d&d, dnd, dungeons and dragons, minecraft, fortnite
    world of warcraft, magic, magic the gathering, warhammer, dota, league of legends
    counter-strike, cards, bingo, the lottery
""")
PRACTICES = phrases("""
    yoga, pilates, karate, judo, taekwondo, jiu-jitsu, bjj, aikido, kickboxing, boxing, mma
    crossfit, gardening, pottery, ceramics, tai chi, ballet, gymnastics, archery, fencing
    calligraphy, origami, carpentry, woodwork, woodworking, weightlifting, powerlifting, parkour
    martial arts, improv, stand-up comedy, amateur dramatics, triathlons, marathons, ironmans
    geocaching, photography, crosswords, jigsaw puzzles, embroidery, knitting, crochet, quilting
    sudoku, meditation, krav maga, intermittent fasting, keto, volunteering, freelance work
    street photography, watercolours, watercolors, oil painting, athletics, salsa, tango, capoeira
    birdwatching, beekeeping
""")
OUTINGS = words("""
    climbing swimming running hiking skiing cycling dancing fishing sailing kayaking bouldering
    surfing jogging horse-riding riding camping rowing snowboarding skating ice-skating
    rollerblading diving scuba-diving snorkelling snorkeling canoeing paddleboarding windsurfing
    kitesurfing mountaineering birdwatching geocaching hunting bowling foraging paragliding
    orienteering
""")
FIELDS = phrases("""
    law, medicine, nursing, dentistry, pharmacy, veterinary medicine, computer science
    informatics, mathematics, maths, math, statistics, physics, chemistry, biology, biochemistry
    geology, geography, economics, finance, accounting, business, business administration
    management, marketing, psychology, sociology, anthropology, philosophy, theology, history
    art history, literature, english literature, linguistics, translation, journalism
    media studies, communication, communications, politics, political science
    international relations, education, architecture, urban planning, design, graphic design
    fashion design, fine art, fine arts, art, music, drama, theatre, film, engineering
    electrical engineering, mechanical engineering, civil engineering, chemical engineering
    software engineering, data science, artificial intelligence, machine learning, robotics
    agriculture, forestry, ecology, environmental science, marine biology, molecular biology
    neuroscience, genetics, astronomy, astrophysics, archaeology, classics, social work
    public health, sports science, tourism, hospitality, logistics, aerospace engineering
    religious studies, gender studies, criminology, veterinary science, science
    biomedical engineering, materials science, cybersecurity, information systems, epidemiology
    pe, special education, social studies, religious education, physical education
""")
INDUSTRIES = phrases("""
    construction, finance, banking, insurance, marketing, advertising, sales, retail, hr
    human resources, it, tech, healthcare, health care, education, academia, publishing
    journalism, media, television, tv, radio, film, the film industry, hospitality, tourism
    logistics, transport, shipping, aviation, agriculture, farming, forestry, fishing, mining
    manufacturing, engineering, consulting, law, real estate, property, recruitment, research
    biotech, pharma, pharmaceuticals, software, cybersecurity, data science, government
    local government, politics, the public sector, the civil service, charity, the army, the navy
    the military, customer service, customer support, accounting, procurement, catering, fashion
    design, architecture, social care, social work, childcare, care, energy, oil and gas
    renewables, telecoms, gaming, e-commerce, event management, nursing, a hospital, a school
    a library, a bakery, a warehouse, a factory, a bank, a restaurant, a kindergarten, a nursery
    a museum, a call centre, a call center, a pharmacy, a lab, a care home, a nursing home
    a hotel, a café, a cafe, a bookshop, a supermarket, a garage, a law firm, a university
    an office, a kitchen, a bar, a pub, a shop, emergency medicine, intensive care
    the emergency room, a startup, a start-up, aerospace, machine learning, quality assurance
""")
BUSINESSES = words("""
    bakery shop firm company café cafe restaurant hotel farm business agency studio bar pub clinic
    store startup start-up salon garage bookshop brewery hostel guesthouse b&b practice gallery
    school nursery kindergarten vineyard winery gym charity bookstore consultancy boutique
    pharmacy publishing-house podcast newsletter blog website youtube-channel foodtruck kiosk
    laundry stall club book-club choir band meetup youth-group
""")
WORK_TIMES = phrases("""
    nights, night shifts, day shifts, shifts, late shifts, early shifts, weekends, part time
    part-time, full time, full-time, from home, remotely, freelance, four days a week
    three days a week, two days a week, on weekends, in shifts, double shifts, the night shift
    the late shift, the early shift, night shift, five days a week, 12-hour shifts
""")
CONSUMED = phrases("""
    alcohol, meat, red meat, pork, beef, fish, seafood, shellfish, sugar, coffee, caffeine, gluten
    dairy, bread, carbs, cigarettes, nicotine, smoking, vaping, drinking, wine, beer, chocolate
    milk, cheese, eggs, soda, fizzy drinks, fast food, social media, facebook, instagram, twitter
    gambling, weed, sweets, energy drinks, meat and fish, drinking alcohol, drinking coffee, salt
    wheat
""")
MAKES = words("""
    tesla volvo bmw audi mercedes volkswagen vw toyota honda ford fiat renault peugeot citroën
    citroen skoda škoda seat kia hyundai mazda nissan subaru suzuki porsche mini dacia opel
    vauxhall jeep chevrolet polestar lexus saab yamaha kawasaki ducati harley harley-davidson
    vespa triumph ktm iphone ipad macbook imac pixel galaxy thinkpad kindle chromebook surface
    steam playstation ps5 xbox nintendo switch fairphone dell lenovo garmin fitbit peloton roomba
    raspberry brompton leica canon nikon fuji fujifilm steinway fender gibson cybertruck prius
    golf
""")
POSSESSIONS = phrases("""
    car, electric car, motorbike, motorcycle, bike, bicycle, e-bike, boat, sailing boat, houseboat
    van, camper van, campervan, caravan, garden, big garden, small garden, allotment, balcony
    house, flat, apartment, cabin, summer house, cottage, holiday home, farm, piano, greenhouse
    driving licence, driver's license, driving license, phd, black belt, wheelchair, guide dog
    season ticket, sauna, service dog, swimming pool, hybrid car, cargo bike, motorhome, canoe
    kayak
""")
WORN = phrases("""
    glasses, contacts, contact lenses, hearing aids, a hearing aid, reading glasses, braces, a wig
    a hijab, a turban, dentures, bifocals, a headscarf, an insulin pump, a pacemaker, varifocals
""")
AIDS = phrases("""
    a wheelchair, crutches, a walking stick, a cane, a white cane, a screen reader, a cpap
    an inhaler, an insulin pump, a hearing aid, a walker, a guide dog, a cpap machine
    voice control
""")
# The last word of something that happens on a date.
EVENTS = words("""
    appointment interview exam flight surgery operation wedding trip concert dinner lunch
    breakfast party deadline conference holiday vacation checkup check-up scan test recital match
    game race marathon triathlon audition presentation viva defence defense graduation funeral
    christening baptism reunion anniversary court-date hearing mri colonoscopy biopsy procedure
    meeting workshop course retreat festival performance gig show rehearsal tournament competition
    visit move housewarming barbecue bbq prom ceremony date review hike camp tour cruise
    ultrasound transplant vaccination exhibition opening seminar lecture baby-shower shower 10k 5k
    ultramarathon camping-trip teeth due-date delivery inspection moving-day semester internship
    traineeship apprenticeship job
""")
LIMITED = words("""
    visa lease passport contract subscription licence license insurance membership permit warranty
    residence-permit tenancy probation notice internship mortgage sabbatical leave term semester
    scholarship grant
""")
COLLECTIONS = phrases("""
    stamps, vintage stamps, coins, old coins, records, vinyl, vinyl records, books, old books
    comics, comic books, trading cards, baseball cards, pokemon cards, watches, fountain pens
    pens, dolls, posters, art, antiques, minerals, fossils, shells, seashells, postcards, sneakers
    guitars, cameras, old cameras, toys, lego, maps, old maps, teapots, mugs, fridge magnets
    magnets, knives, whisky, wine, plants, butterflies, beetles, figurines, model trains
    model cars, action figures, typewriters, old typewriters, vintage cars, classic cars
    old radios, furniture, old furniture, board games, perfume
""")
PRODUCT_STARTS = words("i it the this that a an")
BELONGINGS = phrases("""
    phone, laptop, computer, pc, tablet, camera, editor, browser, keyboard, operating system, os
    car, bike, motorbike, mobile, work laptop, work phone, watch, smartwatch, e-reader, desktop
    printer, router, bank, shell, terminal, keyboard layout, timezone, time zone, time-zone
    insurance, instrument, distro, ide, gym, airline, home town, hometown, middle name, surname
    last name, maiden name, first name, nickname, username, star sign, blood type, blood group
    shoe size, ring size, dress size, shirt size, clothing size, collar size, pronouns, major
    minor, school, university, native language, first language, second language, mother tongue
    native tongue, goal, hobby, hobbies, main hobby, nationality, degree, football team
    favourite team, resting heart rate, height, weight, sport, religion, job title
""")
NUMBERS = words("""
    one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen
    sixteen seventeen eighteen nineteen twenty
""")
