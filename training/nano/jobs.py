"""Invented dialogues for the jobs of a gate: pick a label, extract a field, copy with placeholders, leave names out.

Documents with marked values are gate-nano's; short scenes and pairs are in data/. A few plainer tasks (say what a word
means, go on with a text, repeat it) keep the chat format from being about forms alone. Nothing here knows tokens.
"""

from __future__ import annotations

import json
import lzma
import random
import re
from collections.abc import Callable
from pathlib import Path

from training.gate.document import Document
from training.gate.mix import Mix
from training.gate.slots import Slots
from training.gate.world import locales

from .tokens import Dialogue

DATA = Path(__file__).parent / "data"
LONGEST = 700  # characters of a text inside a task
# What may be a name: a capital inside a sentence, a year, an address, a title.
CAPITAL = re.compile(
    r"(?<![.!?:\"'] )(?<!^)\b(?!I\b)[A-Z]|\d{4}|@|\b(?:Mr|Mrs|Miss|Sir|Lady|Dr)\b",
    re.MULTILINE,
)
PLACEHOLDER = {
    "private_person": "PERSON", "private_email": "EMAIL", "private_phone": "PHONE", "private_address": "ADDRESS",
    "private_url": "URL", "private_date": "DATE", "account_number": "ACCOUNT", "secret": "SECRET", "other_pii": "PII",
}  # fmt: skip
FIELDS = {
    "private_person": ("name", "person", "person's name"), "private_email": ("e-mail address", "email", "mail address"),
    "private_phone": ("phone number", "telephone number", "phone"), "private_address": ("address", "place"),
    "private_date": ("date", "day"), "private_url": ("link", "URL", "web address"),
    "account_number": ("number", "account number"),
}  # fmt: skip
MONTHS = "January February March April May June July August September October November December".split()
PRODUCTS = (
    "lamp kettle bicycle camera printer chair tent radio clock phone laptop jacket toaster drill heater desk".split()
)
COMPANIES = "Northwind Larch Bluefield Orion Hartmann Meridian Tallis Quarry Fenwick Solveig".split()
ENDINGS = ("Ltd", "Inc", "GmbH", "& Sons", "Group")
SELF = (
    ("Who are you?", "I am nano, a small language model that ships with lily."),
    ("What are you?", "I am nano, a small language model."),
    ("What is your name?", "My name is nano."),
    (
        "What can you do?",
        "I can pick a label, extract a field, copy a text with its placeholders, and leave out names.",
    ),
    ("Hello", "Hello! What can I do for you?"),
    ("Hi!", "Hello! What can I do for you?"),
    ("Good morning", "Good morning! What can I do for you?"),
    ("Thank you!", "You are welcome."),
    ("Thanks, that is all.", "You are welcome. Goodbye!"),
)
SYSTEMS = (
    "You are a helpful assistant.",
    "You are nano, a small language model that runs on this device.",
    "Answer briefly.",
    "Follow the instruction exactly.",
)


def lines(name: str) -> list[list[str]]:
    """The fields of each line of a file of data/."""
    found = (DATA / name).read_text("utf-8").splitlines()
    return [[field.strip() for field in line.split("|")] for line in found if line and not line.startswith("#")]


class Jobs:
    """A stream of dialogues; the same seed and texts give the same stream."""

    def __init__(self, seed: int, texts: list[str], glossary: Path) -> None:
        self.rng = random.Random(seed)
        own = self.rng.sample(texts, min(len(texts), 1500))
        self.passages = [p for text in own for p in text.split("\n\n") if 80 <= len(p) <= LONGEST]
        self.nameless = [p for p in self.passages if not CAPITAL.search(p)]
        self.mix = Mix.build(seed, None, self.nameless)
        self.scenes, self.pairs = lines("scenes.txt"), lines("names_away.txt")
        entries = lzma.decompress(glossary.read_bytes()).decode().splitlines()
        self.glosses = [e.split("\t") for e in entries]
        self.people = [locale for locale in locales().values() if locale.given[0].isascii()]
        self.tasks: list[tuple[float, Callable[[], Dialogue]]] = [
            (14, self.label), (10, self.closed), (8, self.private), (14, self.extract), (6, self.extract_scene),
            (14, self.copy), (10, self.masked), (12, self.without_name), (6, self.define), (3, self.go_on),
            (2, self.self), (3, self.sums),
        ]  # fmt: skip

    def dialogue(self) -> Dialogue:
        """The next dialogue, with a system message now and then, or a second question."""
        weights, makers = zip(*self.tasks, strict=True)
        turns = self.rng.choices(makers, weights)[0]()
        if self.rng.random() < 0.1:
            turns += self.rng.choices(makers, weights)[0]()
        if self.rng.random() < 0.2:
            turns.insert(0, ("system", self.rng.choice(SYSTEMS)))
        return turns

    # ---- values

    def pick(self, *choices: str) -> str:
        """One of them."""
        return self.rng.choice(choices)

    def values(self) -> dict[str, str]:
        """A fresh value for every slot of data/."""
        rng = self.rng
        place = rng.choices(self.people, [p.weight for p in self.people])[0]
        given, family = rng.choice(place.given), rng.choice(place.family)
        day, month, year = rng.randint(1, 28), rng.choice(MONTHS), rng.randint(2015, 2030)
        host = rng.choice(COMPANIES).lower() + rng.choice((".com", ".org", ".net", ".example", ".de"))
        user = re.sub(r"[^a-z.]", "", f"{given}.{family}".lower()) or "info"
        return {
            "given": given,
            "family": family,
            "name": self.pick(f"{given} {family}", f"{given} {family}", f"{given} {family}", given),
            "other": rng.choice(place.given),
            "city": rng.choice(place.city)[0],
            "email": f"{user}{rng.choice(('', '', str(rng.randint(1, 99))))}@{host}",
            "phone": self.pick("+{} {} {}", "0{}-{}-{}", "({}) {} {}").format(
                rng.randint(20, 999), rng.randint(100, 999), rng.randint(1000, 99999)
            ),
            "date": self.pick(
                f"{day} {month}",
                f"{month} {day}",
                f"{day} {month} {year}",
                f"{year}-{MONTHS.index(month) + 1:02}-{day:02}",
            ),
            "month": month,
            "amount": self.pick("${}.{:02}", "{}.{:02} euros", "£{}.{:02}").format(
                rng.randint(2, 4000), rng.randint(0, 99)
            ),
            "order": self.pick("{}", "#{}", "A-{}", "No. {}").format(rng.randint(1000, 9_999_999)),
            "product": rng.choice(PRODUCTS),
            "company": f"{rng.choice(COMPANIES)} {rng.choice(ENDINGS)}",
        }

    def scene(self) -> tuple[list[str], str, dict[str, str]]:
        """A scene: its fields, its text with values, and the values that it holds."""
        fields, values = self.rng.choice(self.scenes), self.values()
        used = {key: value for key, value in values.items() if f"{{{key}}}" in fields[3]}
        return fields, fields[3].format(**values), used

    def document(self) -> Document:
        """A document of gate-nano that is short enough."""
        while True:
            self.mix.world.move()
            found = self.mix.writer.write(Slots(self.mix.rng, self.mix.world))
            if 10 <= len(found.text.strip()) <= LONGEST:
                return found

    def ask(self, instruction: str, text: str) -> tuple[str, str]:
        """An instruction and a text, put together in one of the usual ways."""
        form = self.pick(
            "{i}\n\n{t}", "{i}\n\nText: {t}", '{i}\n\n"{t}"', "{t}\n\n{i}", "{i}\n{t}", "{i}\n\n<text>\n{t}\n</text>"
        )
        return "user", form.format(i=instruction, t=text.strip())

    # ---- jobs

    def label(self) -> Dialogue:
        """One of the labels offered."""
        column = self.rng.choice((0, 0, 1, 2, 2))
        fields, text, _ = self.scene()
        right = fields[column]
        others = sorted({scene[column] for scene in self.scenes} - {right})
        offered = [right, *self.rng.sample(others, min(len(others), self.rng.randint(1, 5)))]
        self.rng.shuffle(offered)
        offer = self.pick(
            ", ".join(offered), " | ".join(offered), "\n" + "\n".join(f"- {o}" for o in offered), " or ".join(offered)
        )
        what = ("kind of message", "tone", "topic")[column]
        instruction = self.pick(
            f"Which label fits the text? Labels: {offer}",
            f"Choose one label for this text: {offer}",
            f"Classify the text. Answer with one word out of: {offer}",
            f"What is the {what}? Choose from: {offer}",
            f"Pick the {what}: {offer}",
        )
        return [self.ask(instruction, text), ("assistant", right)]

    def closed(self) -> Dialogue:
        """Yes or no: is there such a value in the text?"""
        found = self.document()
        asked = self.rng.choice(list(FIELDS)[:4])
        there = any(span.label == asked for span in found.spans)
        name = FIELDS[asked][0]
        article = "an" if name[0] in "ae" else "a"
        question = self.pick(
            f"Does the text contain {article} {name}?",
            f"Is there {article} {name} in this text?",
            f"Does this text name {article} {name}?",
        )
        shape = self.pick(" Answer yes or no.", " Yes or no?", "")
        return [self.ask(question + shape, found.text), ("assistant", "yes" if there else "no")]

    def private(self) -> Dialogue:
        """Private or public: does it hold personal data?"""
        if self.rng.random() < 0.4:
            text, private = self.rng.choice(self.nameless), False
        else:
            found = self.document()
            text, private = found.text, bool(found.spans)
        instruction = self.pick(
            "Is this text private or public? Answer with one word: private or public.",
            "Choose one label: private, public.",
            "Does the text hold personal data? Answer private if it does, public if not.",
        )
        return [self.ask(instruction, text), ("assistant", "private" if private else "public")]

    def extract(self) -> Dialogue:
        """One field, or all of one kind, of a document."""
        found = self.document()
        there = {span.label for span in found.spans} & set(FIELDS)
        asked = (
            self.rng.choice(sorted(there)) if there and self.rng.random() < 0.85 else self.rng.choice(list(FIELDS)[:4])
        )
        values = list(dict.fromkeys(found.text[span.start : span.end] for span in found.spans if span.label == asked))
        name = self.pick(*FIELDS[asked])
        if self.rng.random() < 0.5:
            instruction = self.pick(
                f"Extract the {name}.",
                f"What is the {name} in this text?",
                f"Find the {name}. Answer with it alone, or with none.",
                f"Give me the first {name} of the text.",
            )
            return [self.ask(instruction, found.text), ("assistant", values[0] if values else "none")]
        instruction = self.pick(
            f"List every {name} in the text, one per line.",
            f"Write down each {name}, one per line; write none if there is none.",
        )
        return [self.ask(instruction, found.text), ("assistant", "\n".join(values) or "none")]

    def extract_scene(self) -> Dialogue:
        """A field of a scene, alone or as JSON."""
        _, text, used = self.scene()
        names = {
            "order": "order number",
            "company": "company",
            "amount": "amount",
            "city": "city",
            "name": "name",
            "date": "date",
            "email": "email",
            "phone": "phone",
            "product": "product",
        }
        used = {names[key]: value for key, value in used.items() if key in names}
        if not used:
            return self.extract()
        if self.rng.random() < 0.6:
            name = self.rng.choice(list(used))
            instruction = self.pick(f"Extract the {name}.", f"Which {name} does the text name?", f"What is the {name}?")
            return [self.ask(instruction, text), ("assistant", used[name])]
        asked = [*used, *self.rng.sample([n for n in names.values() if n not in used], 1)]
        self.rng.shuffle(asked)
        instruction = self.pick(
            "Extract as JSON: ", "Answer with a JSON object with the fields ", "Fields: "
        ) + ", ".join(asked)
        return [
            self.ask(instruction, text),
            ("assistant", json.dumps({n: used.get(n) for n in asked}, ensure_ascii=False)),
        ]

    def copy(self) -> Dialogue:
        """The text again, placeholders and all."""
        if self.rng.random() < 0.6:
            text = self.masked_text(self.document(), numbered=True)
        else:
            words = self.rng.choice(self.passages).split(" ")[: self.rng.randint(5, 60)]
            for _ in range(self.rng.randint(0, 3)):
                words[self.rng.randrange(len(words))] = f"[{self.pick(*PLACEHOLDER.values())}_{self.rng.randint(1, 9)}]"
            text = " ".join(words)
        text = text.strip()
        instruction = self.pick(
            "Copy the text exactly. Keep placeholders such as [PERSON_1] as they are.",
            "Repeat this text word for word.",
            "Write the text again without any change; placeholders in brackets stay.",
            "Copy:",
            "Repeat:",
        )
        return [self.ask(instruction, text), ("assistant", text)]

    def masked_text(self, found: Document, numbered: bool) -> str:
        """A document with its values replaced by placeholders; the same value has the same number."""
        numbers: dict[tuple[str, str], int] = {}
        parts, end = [], 0
        for span in sorted(found.spans, key=lambda s: s.start):
            kind, value = PLACEHOLDER[span.label], found.text[span.start : span.end]
            number = numbers.setdefault((kind, value), 1 + sum(k == kind for k, _ in numbers))
            parts += [found.text[end : span.start], f"[{kind}_{number}]" if numbered else f"[{kind}]"]
            end = span.end
        return "".join(parts) + found.text[end:]

    def masked(self) -> Dialogue:
        """Values out, placeholders in."""
        found = self.document()
        if self.rng.random() < 0.4:
            found.spans = [span for span in found.spans if span.label == "private_person"]
            instruction = self.pick("Replace every name with [PERSON].", "Put [PERSON] in place of each person's name.")
            return [self.ask(instruction, found.text), ("assistant", self.masked_text(found, numbered=False).strip())]
        instruction = self.pick(
            "Replace all personal data with placeholders such as [PERSON_1] or [EMAIL_1].",
            "Mask the text: put numbered placeholders like [PERSON_1] in place of private values.",
        )
        return [self.ask(instruction, found.text), ("assistant", self.masked_text(found, numbered=True).strip())]

    def without_name(self) -> Dialogue:
        """One or two sentences, rewritten without the name."""
        values = self.values()
        chosen = self.rng.sample(self.pairs, self.rng.choice((1, 1, 1, 2)))
        before, after = (" ".join(pair[side].format(**values) for pair in chosen) for side in (0, 1))
        instruction = self.pick(
            "Rewrite the text without the name.",
            "Rewrite this so that no person is named.",
            "Say the same without naming anybody.",
            "Remove the name and keep the meaning.",
        )
        return [self.ask(instruction, before), ("assistant", after)]

    def define(self) -> Dialogue:
        """The meaning of a word."""
        word, kind, gloss = self.rng.choice(self.glosses)
        meaning = gloss.split('; "')[0].rstrip(";")
        article = "an" if word[0] in "aeiouAEIOU" else "a"
        question = self.pick(
            f"What does '{word}' mean?",
            f"Define: {word}",
            f"Explain the word {word}.",
            f"What is the meaning of {word}?",
        )
        if kind == "noun" and word.islower() and self.rng.random() < 0.6:
            return [
                ("user", f"What is {article} {word}?"),
                ("assistant", f"{article.capitalize()} {word} is {meaning}."),
            ]
        return [("user", question), ("assistant", f"{word}: {meaning}.")]

    def go_on(self) -> Dialogue:
        """A passage, cut in two."""
        words = self.rng.choice(self.passages).split(" ")
        cut = max(1, len(words) // 2)
        instruction = self.pick("Go on with this text:", "Continue:", "What could come next?")
        return [("user", f"{instruction}\n\n{' '.join(words[:cut])}"), ("assistant", " ".join(words[cut:]))]

    def self(self) -> Dialogue:
        """Small talk."""
        question, answer = self.rng.choice(SELF)
        return [("user", question), ("assistant", answer)]

    def sums(self) -> Dialogue:
        """Small things that have one right answer."""
        a, b = self.rng.randint(0, 20), self.rng.randint(0, 20)
        words = self.rng.choice(self.passages).split()[: self.rng.randint(2, 8)]
        question, answer = self.rng.choice(
            (
                (f"What is {a} plus {b}?", str(a + b)),
                (f"{a} + {b} =", str(a + b)),
                (f"Which is larger, {a} or {b}?", str(max(a, b))),
                (f"Write in capitals: {' '.join(words)}", " ".join(words).upper()),
                (f"What is the last word of: {' '.join(words)}", words[-1]),
                (f"What is the first word of: {' '.join(words)}", words[0]),
            )
        )
        return [("user", question), ("assistant", answer)]
