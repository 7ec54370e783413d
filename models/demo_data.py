"""demo_data.py - the training texts of the demo model, all generated here.

Nothing is downloaded and nothing is copied: stories come from a small grammar,
the checkable tasks (sums, lists, codes) from random numbers.  Every function
takes a random.Random, so that a seed gives the same text on every machine.

A *document* is a list of (text, weight): the pieces are concatenated, and the
loss of a piece's tokens counts `weight` times (0: given, not learned).
"""
import random
import re

END = "<|endoftext|>"
IM_START = "<|im_start|>"
IM_END = "<|im_end|>"

W_TEXT = 1.0        # stories
W_TASK = 0.2        # the given part of a task: random, so little can be learned
W_ANSWER = 4.0      # the answer of a task: few tokens, and what the checks look at

# ---------------------------------------------------------------- the grammar

def expand(rng, text, state):
    """Replace [a|b|c] by one alternative (earlier ones are likelier, so that
    greedy decoding has a clear favourite) and {key} by state[key]."""
    while True:
        m = re.search(r"\[([^\[\]]*)\]", text)
        if not m:
            break
        options = m.group(1).split("|")
        text = text[:m.start()] + pick(rng, options) + text[m.end():]
    text = re.sub(r"\{(\w+)\}", lambda m: state[m.group(1)], text)
    text = re.sub(r"\b([Aa]) (?=[aeiou])(?!uni|use|one)", r"\1n ", text)
    return re.sub(r" +", " ", text).strip()


def pick(rng, options):
    """One of the options, with weight 1/(1 + 0.35 i)."""
    return rng.choices(options, [1 / (1 + 0.35 * i) for i in range(len(options))])[0]


GIRLS = "Lily Mia Anna Lucy Rosie Sara Nina Ella Emma Zoe Clara Ivy".split()
BOYS = "Tom Ben Sam Max Leo Jack Tim Finn Noah Adam Oscar Peter".split()
ANIMAL_GIRLS = "Daisy Ruby Coco Luna Bella Poppy Willow Kiki Olive Hazel".split()
ANIMAL_BOYS = "Pip Milo Toby Benny Hugo Rusty Bruno Ollie Teddy Gus".split()
ANIMALS = ("rabbit fox bear mouse cat dog duck squirrel frog hedgehog turtle "
           "owl kitten puppy pig goat lamb pony beaver badger").split()
BIG_ANIMALS = "elephant horse cow bear giraffe deer whale lion".split()
LITTLE_ANIMALS = "bird kitten mouse bee chick snail butterfly duckling".split()
TOYS = ("ball kite doll boat hat drum bell lantern scarf book train puzzle "
        "whistle basket umbrella cup crown coin shell flute").split()
FOODS = ("cake apple pie bread cookie pear sandwich soup honey carrot "
         "strawberry pancake").split()
COLORS = "red blue green yellow white black pink purple orange brown silver golden".split()
QUALITIES = "little big shiny old new pretty small soft round lovely".split()
TRAITS = "kind brave happy clever gentle curious funny quiet cheerful careful".split()
PLACES = [("the park", "in"), ("the forest", "in"), ("the garden", "in"),
          ("the beach", "at"), ("the river", "by"), ("the lake", "by"),
          ("the farm", "on"), ("the meadow", "in"), ("the hill", "on"),
          ("the village", "in"), ("the market", "at"), ("the old barn", "in"),
          ("the mountain", "on"), ("the pond", "by"), ("the valley", "in")]
HIDDEN = ["under a bush", "behind a tree", "under the bed", "in a hole",
          "behind the door", "under a pile of leaves", "in the tall grass",
          "next to a big rock", "inside a basket", "under the old bridge"]


def being(rng, kind=None, name=None, avoid=()):
    """A character: name, kind and pronouns."""
    while True:
        girl = rng.random() < 0.5
        if kind is None and rng.random() < 0.45 or kind == "child":
            k = "girl" if girl else "boy"
            n = pick(rng, GIRLS if girl else BOYS)
        else:
            k = kind or pick(rng, ANIMALS)
            n = pick(rng, ANIMAL_GIRLS if girl else ANIMAL_BOYS)
        if name:
            n = name
            girl = name in GIRLS or name in ANIMAL_GIRLS
            if k in ("girl", "boy"):
                k = "girl" if girl else "boy"
        if n not in avoid:
            break
    pron = ("she", "her", "her") if girl else ("he", "him", "his")
    return {"name": n, "kind": k, "he": pron[0], "him": pron[1], "his": pron[2]}


def scene(rng, kind=None, name=None, toy=None, place=None):
    """The cast, the place and the things of one story."""
    h = being(rng, kind, name)
    f = being(rng, None, None, avoid=(h["name"],))
    if h["kind"] == f["kind"] and h["kind"] not in ("girl", "boy"):
        f["kind"] = pick(rng, [a for a in ANIMALS if a != h["kind"]])
    p, prep = pick(rng, PLACES)
    if place:
        p, prep = next(x for x in PLACES if x[0] == place)
    toy = toy or pick(rng, TOYS)
    s = {"h": h["name"], "hk": h["kind"], "he": h["he"], "him": h["him"], "his": h["his"],
         "f": f["name"], "fk": f["kind"], "fhe": f["he"], "fhim": f["him"], "fhis": f["his"],
         "place": p, "inplace": prep + " " + p, "toy": toy, "color": pick(rng, COLORS),
         "quality": pick(rng, QUALITIES), "trait": pick(rng, TRAITS), "ftrait": pick(rng, TRAITS),
         "food": pick(rng, FOODS), "hidden": pick(rng, HIDDEN),
         "big": pick(rng, [a for a in BIG_ANIMALS if a not in (h["kind"], f["kind"])]),
         "tiny": pick(rng, [a for a in LITTLE_ANIMALS if a not in (h["kind"], f["kind"])])}
    for k in ("he", "his", "fhe", "fhis"):
        s[k.capitalize() if k[0] == "h" else "F" + k[1:]] = s[k].capitalize()
    return s


OPENINGS = [
    "Once upon a time, there was a {trait} [little |]{hk} named {h}. {h} lived [near|close to|not far from] {place}.",
    "Once upon a time, there was a [little |]{hk} named {h}. {h} was [very |so |]{trait} and [loved|liked] to play {inplace}.",
    "Once upon a time, a {trait} {hk} named {h} lived [in a small house|in a cozy home|with {his} family] near {place}.",
    "Once upon a time there was a {hk} [called|named] {h}. {He} was very {trait}, and everyone liked {him}.",
    "One [sunny|warm|bright|fine] day, a {hk} named {h} [went to|walked to] {place}. {h} was a {trait} {hk}.",
    "There was once a {trait} {hk} named {h}, who [loved|liked] to [play|sing|run] {inplace}.",
    "{h} was a {trait} [little |]{hk}. [Every day|Every morning], {he} went to {place} to play.",
]
FRIENDS = [
    "{h} had a [good|best|dear] friend, a {fk} named {f}.",
    "{His} best friend was {f}, a {ftrait} {fk}.",
    "{h} and {his} friend {f} the {fk} [played together every day|did everything together].",
]
ENDINGS = [
    "From that day on, {h} and {f} were the best of friends.",
    "{h} was very happy. {He} smiled all the way home.",
    "They played together until the sun went down. It was a [wonderful|lovely|perfect] day.",
    "And they all lived happily ever after.",
    "{h} and {f} laughed and hugged. They were so happy.",
    "That night, {h} went to bed with a big smile.",
]
MORALS = [
    "{h} learned that it is good to [help others|be kind|share].",
    "{h} learned that friends [always help each other|make everything better].",
    "{h} never forgot that day.",
]

# Each plot is a list of paragraphs, behind the opening and the friend.
PLOTS = {
    "lost": [
        "{h} had a {color} {toy}. It was {his} favorite {toy}. One day, {h} could not find {his} {toy}. {He} looked [everywhere|in the house and in the garden], but it was [gone|not there]. {h} was very sad and began to cry.",
        "\"[Why are you crying|What is wrong|Why are you sad], {h}?\" asked {f}.\n\"I lost my {color} {toy},\" said {h}.\n\"Don't [worry|cry],\" said {f}. \"I will help you find it.\"",
        "{h} and {f} looked {inplace}. They looked [for a long time|high and low|all day]. Then {f} [saw|found] something {color} {hidden}. It was the {toy}!\n\"You found it! Thank you, {f}!\" said {h}. {He} gave {f} a big hug.",
    ],
    "afraid": [
        "But {h} was afraid of [the dark|thunder|the deep water|loud noises]. One [evening|night], {he} was {inplace} and felt very scared. {He} wanted to [run home|hide].",
        "{f} came and sat next to {h}. \"I was scared too when I was little,\" said {f}. \"[Take my hand|Hold my hand|Stay close to me], and we will be brave together.\"",
        "{h} took a deep breath and held on to {f}. Slowly, the fear went away. \"[Look|See], I am not scared any more!\" said {h}.\n\"You are very brave,\" said {f}, and they both smiled.",
    ],
    "share": [
        "One day, {h} had a [big|fresh|tasty|warm] {food}. It smelled so good! {h} sat down {inplace} to eat it. Then {f} came by. {f} looked [very |]hungry and sad.",
        "\"[What is wrong|Are you hungry], {f}?\" asked {h}.\n\"I have nothing to eat today,\" said {f}.\n{h} [thought for a moment|looked at the {food}]. Then {he} said, \"You can have half of my {food}.\"",
        "{f} was so happy. \"Thank you, {h}! You are very kind,\" said {f}. They sat together and ate the {food}. It tasted even better because they shared it.",
    ],
    "rescue": [
        "One day, {h} heard a small voice {inplace}. \"Help! Help!\" it said. {h} looked around and saw a little {tiny}. The {tiny} was stuck [in the mud|in a deep hole|high up in a tree|under a heavy branch].",
        "\"Don't be afraid,\" said {h}. \"I will help you.\" {h} pulled and pulled, but {he} was not strong enough. So {h} called {his} friend {f}.",
        "{f} came running with a long [rope|stick]. Together, they pulled as hard as they could. At last, the {tiny} was free! \"Thank you, {h}! Thank you, {f}!\" said the {tiny}. \"You saved me.\"",
    ],
    "build": [
        "One day, {h} wanted to make a [kite|boat|little house|swing]. {He} took some wood, some paper and a long string. {h} worked all morning. But when the wind blew, it [broke|fell apart]. {h} felt [very |]sad.",
        "\"I can't do it,\" said {h}.\n\"Don't give up,\" said {f}. \"Let's try again together.\" So they started again. {h} held the wood, and {f} tied the string.",
        "This time, it did not break. \"We did it!\" said {h}. {f} jumped up and down. They took it to {place} and played with it all day.",
    ],
    "learn": [
        "{h} wanted to learn how to [swim|ride a bike|sing|dance|climb a tree]. {He} tried, but it was [very hard|not easy]. {He} tried again and fell down. \"Ouch!\" said {h}. \"I will never learn this.\"",
        "A wise old {big} saw {him}. \"Everyone falls at first,\" said the {big}. \"Try a little every day, and you will see.\" {h} listened and tried again every day.",
        "After [many days|a week], {h} could do it! \"Look at me!\" {he} said to {f}. {f} clapped and [said, \"Well done, {h}!\"|cheered.] {h} was very proud.",
    ],
    "wish": [
        "One [day|evening], {h} found a {quality} {color} {toy} {hidden}. When {h} picked it up, it began to [shine|glow]. \"I am a magic {toy},\" it said. \"You can have one wish.\"",
        "{h} thought and thought. {He} could ask for [toys|gold|a big house] or a lot of {food}. Then {he} saw {f}, who was [sad|sick|all alone] {inplace}.\n\"I wish that my friend {f} will be happy,\" said {h}.",
        "The {toy} [shone|glowed] very bright. Soon {f} began to smile and laugh. \"I feel so happy!\" said {f}. The magic was gone, but {h} was happy too.",
    ],
    "rain": [
        "One day, {h} wanted to play {inplace}. But dark clouds came, and it began to rain. {h} looked out of the window. \"I can't play outside,\" {he} said [sadly|in a sad voice].",
        "Then {f} knocked on the door. {f} was all wet, but {fhe} had a {color} {toy}. \"We can play inside,\" said {f}. They played with the {toy} and ate warm {food}.",
        "After a while, the rain stopped. {h} and {f} ran outside. There was a beautiful rainbow in the sky! \"Rain is not so bad,\" said {h}.",
    ],
    "quarrel": [
        "One day, {h} and {f} found a {quality} {color} {toy} {inplace}. \"It is mine!\" said {h}. \"No, it is mine!\" said {f}. They both pulled on the {toy}, and they both got angry.",
        "A wise old {big} heard the noise. \"[Why do you fight|Why are you angry]?\" asked the {big}. \"If you take turns, you can both have fun.\"",
        "{h} looked at {f}. \"I am sorry,\" said {h}. \"You can go first.\"\n\"I am sorry too,\" said {f}. They took turns with the {toy}, and it was much more fun.",
    ],
    "truth": [
        "One day, {h} was playing with a {color} {toy} in the house. Suddenly, the {toy} hit a [vase|cup|lamp|plate]. Crash! It fell down and broke. {h} was scared. {He} wanted to hide.",
        "{f} said, \"You should tell the truth, {h}. I will go with you.\" So {h} went to {his} mom. \"Mom, I broke it,\" {he} said. \"I am very sorry.\"",
        "{His} mom was not angry. \"Thank you for telling me the truth,\" she said. \"That was very brave.\" Then they all cleaned up together.",
    ],
    "garden": [
        "One day, {h} found a tiny seed {inplace}. \"What will you be?\" {he} asked. {h} put the seed in the ground and gave it some water. But nothing happened.",
        "\"Maybe it is a bad seed,\" said {h}.\n\"You must wait,\" said {f}. \"Good things take time.\" So every day, {h} gave the seed water, and {f} sang a little song.",
        "One morning, there was a {quality} {color} flower! It was the [most beautiful|prettiest] flower {inplace}. \"It was worth the wait,\" said {h}.",
    ],
    "treasure": [
        "One day, {h} found an old map {hidden}. \"It is a treasure map!\" said {h}. {He} showed it to {f}. \"Let's go and find the treasure,\" said {f}. They were very excited.",
        "They walked over a bridge and through {place}. On the way, they met a {big}. \"Where are you going?\" asked the {big}.\n\"We are looking for treasure,\" said {h}. \"Come with us!\"",
        "At last, they found a {color} box {hidden}. Inside there was a {quality} {toy} and a lot of {food}. They shared everything with the {big}. \"The best treasure is a good friend,\" said {h}.",
    ],
    "birthday": [
        "Today was {h}'s birthday. But nobody said a word about it. Even {f} did not say \"happy birthday\". {h} walked to {place} and felt very lonely. \"Everyone forgot,\" {he} said.",
        "When {h} came home, it was dark and quiet. {He} opened the door. \"Surprise!\" everyone shouted. All {his} friends were there, and there was a big {food} on the table.",
        "\"We did not forget,\" said {f}. \"This is for you.\" {f} gave {h} a {quality} {color} {toy}. \"Thank you!\" said {h}. \"This is the best birthday ever!\"",
    ],
    "astray": [
        "One day, {h} saw a {color} butterfly and ran after it. {He} ran and ran. When {he} stopped, {he} did not know where {he} was. {h} was lost {inplace}. \"[Where is my home|How do I get home]?\" {he} cried.",
        "A {big} heard {him}. \"Don't cry, little one,\" said the {big}. \"I know the way. Follow me.\" They walked past the [tall trees|old mill|big rocks] and over a small bridge.",
        "Soon {h} could see {his} home. {f} was waiting at the door. \"I was so worried!\" said {f}. {h} thanked the {big} and promised to be more careful.",
    ],
    "sick": [
        "One morning, {f} did not come to play. {h} went to see {fhim}. {f} was in bed, and {fhis} nose was red. \"I am sick,\" said {f}. \"I can't play today.\"",
        "{h} wanted to help. {He} went home and made some warm soup with {his} mom. {He} also took {his} {color} {toy} and carried everything to {f}.",
        "{f} ate the soup and held the {toy}. \"I feel better already,\" said {f}. The next day, {f} was well again, and they went to {place} to play.",
    ],
    "race": [
        "One day, there was a big race {inplace}. A proud {big} said, \"I am the fastest. Nobody can beat me!\" {h} was small and slow, but {he} wanted to try.",
        "The {big} ran fast and was far ahead. \"I have so much time,\" said the {big}, and lay down to sleep under a tree. {h} did not stop. Step by step, {he} went on.",
        "When the {big} woke up, {h} was already at the end! \"You won, {h}!\" shouted {f}. The {big} said, \"I am sorry. I was too proud.\" {h} smiled and said, \"You can race with me again tomorrow.\"",
    ],
    "sleep": [
        "One night, {h} could not sleep. {He} [turned around and around in bed|counted to one hundred]. \"I am not tired,\" said {h}. {He} looked out of the window at the [moon|stars].",
        "{His} mom came in and sat on the bed. \"Look at that little star,\" she said. \"It shines for you every night.\" Then she sang a soft song about {place}.",
        "{h} held {his} {color} {toy} and closed {his} eyes. Soon {he} was fast asleep. In {his} dream, {he} flew to the star with {f}.",
    ],
}


def story_lines(rng, **fixed):
    """A story as a list of lines."""
    s = scene(rng, **fixed)
    first = expand(rng, pick(rng, OPENINGS), s)
    if s["f"] not in first:
        first += " " + expand(rng, pick(rng, FRIENDS), s)
    lines = [first]
    for part in PLOTS[pick(rng, list(PLOTS))]:
        lines += expand(rng, part, s).split("\n")
    last = expand(rng, pick(rng, ENDINGS), s)
    if rng.random() < 0.35:
        last += " " + expand(rng, pick(rng, MORALS), s)
    return lines + [last]


def story(rng):
    return [("\n".join(story_lines(rng)) + END, W_TEXT)]

# ------------------------------------------------------- the checkable tasks

SUM_MAX = 20                   # 441 sums: few enough to know them all, so none is held out

LIST_WORDS = ("apple river seven blue house tree moon star fish bird cat dog milk bread "
              "stone green red yellow white black one two three four five six eight nine ten "
              "sun rain snow wind cloud sea lake hill road bridge garden flower grass leaf seed "
              "door window table chair lamp bed cup plate spoon book pen paper bell drum "
              "horse cow pig goat duck frog bear fox owl mouse rabbit lion bee ant "
              "king queen boy girl friend mother father baby hat coat shoe ring key box bag "
              "ship boat train car wheel rope gold silver wood fire ice salt sugar honey "
              "cake soup egg rice corn pear plum lemon cherry hand foot head eye ear nose "
              "day night summer winter spring morning city farm forest field castle tower").split()

THINGS = ("door box gate chest room house boat bag safe barn wagon cabin").split()


def held_out_list(words):
    """One list in 16 is kept for the checks."""
    return sum(ord(c) * (i + 1) for i, c in enumerate("".join(words))) % 16 == 5


def list_words(rng, held_out=False, longest=8):
    while True:
        words = rng.sample(LIST_WORDS, rng.randint(3, longest))
        if held_out_list(words) == held_out:
            return words


def sum_doc(rng, pair=None):
    a, b = pair or (rng.randint(0, SUM_MAX), rng.randint(0, SUM_MAX))
    return [(f"{a} + {b} =", W_TASK), (f" {a + b}{END}", W_ANSWER)]


def list_doc(rng, held_out=False, longest=8):
    words = ", ".join(list_words(rng, held_out, longest))
    return [(f"Repeat: {words}. Answer:", W_TASK), (f" {words}{END}", W_ANSWER)]


def facts(rng, n, held_out=False):
    """n codes of things that differ in colour and thing: [(thing, code)].
    Codes that are multiples of 7 are kept for the checks."""
    colors, things = rng.sample(COLORS, n), rng.sample(THINGS, n)
    codes = []
    while len(codes) < n:
        code = "".join(rng.sample("0123456789", 3))
        if (int(code) % 7 == 0) == held_out and code not in codes:
            codes.append(code)
    return [(f"{c} {t}", code) for c, t, code in zip(colors, things, codes)]


def code_context(rng, count, budget, n_facts, held_out=False):
    """Story lines with facts among them, about `budget` tokens long.
    `count` counts the tokens of a text.  Returns (text, facts)."""
    known = facts(rng, n_facts, held_out)
    statements = [f"The code of the {t} is {c}." for t, c in known]
    lines, used = [], sum(count(s) + 1 for s in statements)
    while used < budget:
        for line in story_lines(rng):
            used += count(line) + 1
            if used >= budget:
                break
            lines.append(line)
    at = sorted(rng.randint(0, len(lines)) for _ in statements)
    if rng.random() < 0.5:
        at[0] = 0
    for i, s in reversed(list(zip(at, statements))):
        lines.insert(i, s)
    return "\n".join(lines), known


def code_question(thing):
    return f"What is the code of the {thing}?"


def code_doc(rng, count, budget=0, n_facts=None, held_out=False):
    """The plain form: facts in a text, one question."""
    n_facts = n_facts or rng.randint(1, 4)
    text, known = code_context(rng, count, budget, n_facts, held_out)
    thing, code = rng.choice(known)
    w = W_TEXT * 0.5 if budget > 100 else W_TASK
    return [(text, w), (f"\n{code_question(thing)} Answer:", W_TASK),
            (f" {code}{END}", W_ANSWER)]


def recall_doc(rng, count, budget):
    """The same with every fact stated again at the end, in another order: more
    answers for each long text than one question gives."""
    text, known = code_context(rng, count, budget, rng.randint(3, 6))
    rng.shuffle(known)
    doc = [(text, W_TEXT * 0.5 if budget > 100 else W_TASK)]
    for thing, code in known:
        doc += [(f"\nThe code of the {thing} is", W_TASK), (f" {code}.", W_ANSWER)]
    return doc + [(END, W_TEXT)]

# ----------------------------------------------------------------------- chat

SYSTEMS = ["You are a helpful assistant.", "You tell short stories to children.",
           "You are a friendly storyteller.", "Answer briefly."]

TALK = [
    ("Hello!|Hello|Hi|Hi!|Good morning!", "Hello! How can I help you today?"),
    ("How are you?|How are you today?", "I am fine, thank you. How are you?"),
    ("Who are you?|What are you?|What is your name?", "I am a very small language model. I tell short stories."),
    ("What can you do?|How can you help me?|Help", "I can tell a short story, add two small numbers, repeat a list and find a code in a long text."),
    ("Thank you!|Thank you|Thanks!|Thanks", "You are welcome!"),
    ("Goodbye!|Goodbye|Bye!|Good night!", "Goodbye! Come back soon."),
    ("What color is the sky?", "The sky is blue."),
    ("What color is grass?|What color is the grass?", "Grass is green."),
    ("What color is snow?", "Snow is white."),
    ("What does a cow say?", "A cow says moo."),
    ("What does a cat say?", "A cat says meow."),
    ("What does a dog say?", "A dog says woof."),
    ("What does a duck say?", "A duck says quack."),
    ("Where do fish live?", "Fish live in the water."),
    ("Where does a bird live?|Where do birds live?", "A bird lives in a nest."),
    ("What do bees make?", "Bees make honey."),
    ("When does the sun shine?", "The sun shines during the day."),
    ("What do you like?", "I like stories with a happy end."),
]


def turn(user, assistant):
    return [(f"{IM_START}user\n{user}{IM_END}\n{IM_START}assistant\n", W_TASK)] + assistant + [("\n", 0)]


def story_turn(rng):
    lines, ask = None, rng.random()
    if ask < 0.4:
        ask = rng.choice(["Tell me a story.", "Tell me a story!", "Please tell me a story.",
                          "Write a short story.", "Tell me a short story."])
        lines = story_lines(rng)
    elif ask < 0.75:
        animal = rng.choice(ANIMALS)
        verb = rng.choice(["Tell me a story", "Tell me a short story", "Write a story", "Write a short story"])
        place = rng.choice(PLACES)[0] if rng.random() < 0.3 else None
        toy = rng.choice(TOYS) if rng.random() < 0.4 else None
        ask = expand(rng, f"{verb} about a {animal}" + (f" and a {toy}" if toy else "") +
                     (f" near {place}" if place else "") + rng.choice([".", ".", "!"]), {})
        lines = story_lines(rng, kind=animal, place=place, toy=toy)
    else:
        name = rng.choice(GIRLS + BOYS)
        toy = rng.choice(TOYS) if rng.random() < 0.5 else None
        ask = expand(rng, f"Tell me a story about {name}" + (f" and a {toy}" if toy else "") + ".", {})
        lines = story_lines(rng, kind="child", name=name, toy=toy)
    return turn(ask, [("\n".join(lines) + IM_END, W_TEXT)])


def talk_turn(rng):
    asks, answer = rng.choice(TALK)
    return turn(rng.choice(asks.split("|")), [(answer + IM_END, W_TEXT)])


def sum_turn(rng):
    a, b = rng.randint(0, SUM_MAX), rng.randint(0, SUM_MAX)
    ask = rng.choice([f"What is {a} + {b}?", f"{a} + {b} ="])
    return turn(ask, [(f"{a + b}{IM_END}", W_ANSWER)])


def list_turn(rng, held_out=False):
    words = ", ".join(list_words(rng, held_out))
    return turn(f"Repeat: {words}.", [("You said:", W_TEXT), (f" {words}.{IM_END}", W_ANSWER)])


def system(rng):
    return [(f"{IM_START}system\n{rng.choice(SYSTEMS)}{IM_END}\n", W_TASK)] if rng.random() < 0.2 else []


def chat_doc(rng):
    """One to three turns of anything but codes."""
    makers = [story_turn, talk_turn, sum_turn, list_turn]
    doc = system(rng)
    for _ in range(rng.choice([1, 1, 2, 3])):
        doc += rng.choices(makers, [4, 2, 7, 2])[0](rng)
    return doc


def code_chat_doc(rng, count, budget=0):
    """A text with codes, then questions about all of them, turn by turn."""
    text, known = code_context(rng, count, budget, rng.randint(1, 5))
    rng.shuffle(known)
    doc = system(rng)
    for i, (thing, code) in enumerate(known):
        ask = code_question(thing) if i else f"{text}\n{code_question(thing)}"
        doc += turn(ask, [(f"{code}{IM_END}", W_ANSWER)])
    return doc


# ------------------------------------------------------------------- mixtures

def short_doc(rng, count):
    """One document for the short, packed rows."""
    kind = rng.choices(["story", "chat", "sum", "list", "code", "recall", "code_chat"],
                       [24, 16, 200, 20, 24, 7, 6])[0]
    if kind == "story":
        return story(rng)
    if kind == "chat":
        return chat_doc(rng)
    if kind == "sum":
        return sum_doc(rng)
    if kind == "list":
        return list_doc(rng)
    budget = rng.choice([0, 0, 0, 60, 120, 180])
    if kind == "code":
        return code_doc(rng, count, budget)
    if kind == "recall":
        return recall_doc(rng, count, min(budget, 120))
    return code_chat_doc(rng, count, min(budget, 120))


def long_doc(rng, count, length):
    """One document of at most `length` tokens for a row of its own."""
    kind = rng.choices(["code", "recall", "code_chat"], [5, 3, 2])[0]
    budget = int(length * rng.uniform(0.75, 1.0)) - {"code": 40, "recall": 110, "code_chat": 150}[kind]
    if kind == "code":
        return code_doc(rng, count, budget)
    if kind == "recall":
        return recall_doc(rng, count, budget)
    return code_chat_doc(rng, count, budget)


def corpus(rng, n):
    """Plain texts for the tokenizer."""
    def count(text):
        return len(text) // 4
    for _ in range(n):
        yield "".join(t for t, _ in short_doc(rng, count))
