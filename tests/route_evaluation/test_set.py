"""The shipped set: its prompts follow from a rule, its grades from the answers it keeps."""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tools.route_evaluation import CANDIDATES, REPORT, evaluate, read_candidates, read_rows

_FOLDER = REPORT.parent
_EACH = 80  # tries to make a prompt of each task; one that comes again is left out

_NAMES = ("Anna", "Ben", "Chloe", "David", "Ella", "Farid", "Greta", "Hugo", "Ines", "Jonas")
_THINGS = ("apples", "books", "coins", "pencils", "stamps", "marbles", "cards", "eggs")
_CITIES = ("Lisbon", "Oslo", "Kyoto", "Lima", "Cairo", "Toronto", "Prague", "Nairobi")
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday")
_GOOD = ("wonderful", "delightful", "excellent", "fantastic", "superb", "lovely")
_BAD = ("terrible", "dreadful", "horrible", "poor", "awful", "disappointing")
_SUBJECTS = ("hotel", "film", "meal", "concert", "phone", "train ride", "teacher", "garden")
_FRAMES = (
    "The {subject} was {word} and I would {again} it again.",
    "I have to say that the {subject} was {word}.",
    "My sister told me the {subject} was {word}, and I {agree}.",
    "What a {word} {subject}! I {feel} every minute of it.",
)
_WORDS = (
    ("water", "Wasser", "eau", "agua"), ("bread", "Brot", "pain", "pan"),
    ("house", "Haus", "maison", "casa"), ("cat", "Katze", "chat", "gato"),
    ("dog", "Hund", "chien", "perro"), ("book", "Buch", "livre", "libro"),
    ("night", "Nacht", "nuit", "noche"), ("milk", "Milch", "lait", "leche"),
    ("tree", "Baum", "arbre", "árbol"), ("sun", "Sonne", "soleil", "sol"),
    ("moon", "Mond", "lune", "luna"), ("red", "rot", "rouge", "rojo"),
    ("black", "schwarz", "noir", "negro"), ("white", "weiß", "blanc", "blanco"),
    ("hand", "Hand", "main", "mano"), ("friend", "Freund", "ami", "amigo"),
    ("school", "Schule", "école", "escuela"), ("door", "Tür", "porte", "puerta"),
    ("window", "Fenster", "fenêtre", "ventana"), ("cheese", "Käse", "fromage", "queso"),
    ("apple", "Apfel", "pomme", "manzana"), ("fish", "Fisch", "poisson", "pez"),
    ("king", "König", "roi", "rey"), ("city", "Stadt", "ville", "ciudad"),
    ("heart", "Herz", "cœur|coeur", "corazón"), ("fire", "Feuer", "feu", "fuego"),
    ("snow", "Schnee", "neige", "nieve"),
)  # fmt: skip
_FACTS = (
    ("the capital of France", "Paris"), ("the capital of Japan", "Tokyo"),
    ("the capital of Italy", "Rome"), ("the capital of Spain", "Madrid"),
    ("the capital of Germany", "Berlin"), ("the capital of Egypt", "Cairo"),
    ("the capital of Canada", "Ottawa"), ("the capital of Australia", "Canberra"),
    ("the capital of Norway", "Oslo"), ("the capital of Poland", "Warsaw"),
    ("the capital of Portugal", "Lisbon"), ("the capital of Greece", "Athens"),
    ("the capital of Austria", "Vienna"), ("the capital of Hungary", "Budapest"),
    ("the capital of Finland", "Helsinki"), ("the capital of Ireland", "Dublin"),
    ("the capital of Kenya", "Nairobi"), ("the capital of Peru", "Lima"),
    ("the capital of Turkey", "Ankara"), ("the capital of Thailand", "Bangkok"),
    ("the capital of Iceland", "Reykjavik"), ("the capital of Cuba", "Havana"),
    ("the capital of Mongolia", "Ulaanbaatar"), ("the capital of Chile", "Santiago"),
    ("the capital of Vietnam", "Hanoi"), ("the capital of Morocco", "Rabat"),
    ("the chemical symbol of gold", "Au"), ("the chemical symbol of silver", "Ag"),
    ("the chemical symbol of iron", "Fe"), ("the chemical symbol of sodium", "Na"),
    ("the chemical symbol of potassium", "K"), ("the chemical symbol of lead", "Pb"),
    ("the chemical symbol of tin", "Sn"), ("the chemical symbol of helium", "He"),
    ("the largest planet of the solar system", "Jupiter"),
    ("the planet closest to the sun", "Mercury"), ("the planet known for its rings", "Saturn"),
    ("the largest ocean of the earth", "Pacific"), ("the largest animal alive", "blue whale"),
    ("the metal that is liquid at room temperature", "mercury"),
    ("the gas that plants take in to make sugar", "carbon dioxide"),
    ("the country whose capital is Nairobi", "Kenya"),
    ("the country whose capital is Stockholm", "Sweden"),
    ("the country whose capital is Lisbon", "Portugal"),
    ("the country in which the Eiffel Tower stands", "France"),
    ("the country in which Machu Picchu lies", "Peru"),
    ("the currency of Japan", "yen"), ("the currency of the United Kingdom", "pound"),
    ("the currency of India", "rupee"), ("the currency of Switzerland", "franc"),
    ("the organ that pumps blood", "heart"), ("the organ that filters blood", "kidney"),
    ("the hardest natural mineral", "diamond"), ("the tallest land animal", "giraffe"),
    ("the fastest land animal", "cheetah"), ("the author of Hamlet", "Shakespeare"),
    ("the author of Don Quixote", "Cervantes"), ("the painter of the Mona Lisa", "Leonardo"),
    ("the author of War and Peace", "Tolstoy"), ("the composer of The Magic Flute", "Mozart"),
    ("the first man on the moon", "Armstrong"),
    ("the scientist who published the theory of relativity", "Einstein"),
    ("the naturalist who wrote On the Origin of Species", "Darwin"),
    ("the number of continents", "seven|7"),
    ("the number of players in a football team", "eleven|11"),
    ("the number of days in a leap year", "366"), ("the number of sides of a hexagon", "six|6"),
    ("the number of strings of a violin", "four|4"), ("the number of legs of a spider", "eight|8"),
    ("the boiling point of water at sea level in degrees Celsius", "100"),
    ("the month after September", "October"), ("the season after winter", "spring"),
    ("the opposite of north", "south"), ("the colour of a ripe banana", "yellow"),
    ("the language most spoken in Brazil", "Portuguese"),
    ("the language most spoken in Austria", "German"),
    ("the river that flows through London", "Thames"),
    ("the river that flows through Cairo", "Nile"),
    ("the river that flows through Paris", "Seine"),
    ("the highest mountain of the earth", "Everest"),
)  # fmt: skip


def _pick(number: int, slot: str, choices: Any) -> Any:
    """One of the choices, by SHA-256 of the number and the slot: the same everywhere."""
    digest = hashlib.sha256(f"{number}:{slot}".encode()).digest()
    return choices[int.from_bytes(digest[:8]) % len(choices)]


def _mathematics(n: int) -> tuple[str, str]:
    def number(slot: str, low: int, high: int) -> int:
        return int(_pick(n, slot, range(low, high)))

    who, what = _pick(n, "who", _NAMES), _pick(n, "what", _THINGS)
    a, b, c = number("a", 12, 60), number("b", 2, 11), number("c", 3, 10)
    asked, value = (
        (f"{who} has {a} {what} and buys {b} more. How many {what} does {who} have?", a + b),
        (f"{who} has {a} {what} and gives {b} away. How many {what} are left?", a - b),
        (f"{who} fills {b} boxes with {c} {what} each. How many {what} is that?", b * c),
        (f"{who} buys {b} bags of {c} {what} and loses 4. How many {what} are left?", b * c - 4),
        (f"What is {a} + {b * c} - {c}?", a + b * c - c),
        (f"What is {a} times {b}?", a * b),
    )[n % 6]
    return f"{asked} Answer with the number only.", str(value)


def _code(n: int) -> tuple[str, str]:
    word = str(_pick(n, "word", [words[0] for words in _WORDS]))
    a, b, c = (int(_pick(n, slot, range(2, 10))) for slot in "abc")
    expression, value = (
        (f"len('{word}') + {a}", len(word) + a),
        (f"'{word}'.upper()", word.upper()),
        (f"[{a}, {b}, {c}][-1]", c),
        (f"sorted([{a}, {b}, {c}])[0]", min(a, b, c)),
        (f"'{word}'[0] + '{word}'[-1]", word[0] + word[-1]),
        (f"sum(range({a}))", sum(range(a))),
        (f"{a + 10} % {b}", (a + 10) % b),
        (f"max({a}, {b}) * {c}", max(a, b) * c),
        (f"'{word}'.replace('{word[0]}', 'x')", word.replace(word[0], "x")),
        (f"bool({a % 2})", bool(a % 2)),
    )[n % 10]
    return (
        f"What does this Python expression evaluate to? `{expression}` "
        "Answer with the value only.", str(value),
    )  # fmt: skip


def _extraction(n: int) -> tuple[str, str]:
    who, city, day = _pick(n, "who", _NAMES), _pick(n, "city", _CITIES), _pick(n, "day", _DAYS)
    amount, order = int(_pick(n, "amount", range(20, 900))), int(_pick(n, "order", range(100, 999)))
    text = (
        f"{who} from {city} paid {amount} euros on {day} for order {order}.",
        f"On {day} order {order} left {city}; {who} will pay {amount} euros for it.",
        f"Order {order} of {who} costs {amount} euros and arrives in {city} on {day}.",
    )[n % 3]
    what, value = (
        ("city", city), ("person", who), ("day of the week", day),
        ("amount in euros", amount), ("order number", order),
    )[n % 5]  # fmt: skip
    return f'Extract the {what} from this text: "{text}" Answer with it only.', str(value)


def _classification(n: int) -> tuple[str, str]:
    good = bool(_pick(n, "good", (True, False)))
    text = _FRAMES[n % len(_FRAMES)].format(
        subject=_pick(n, "subject", _SUBJECTS),
        word=_pick(n, "word", _GOOD if good else _BAD),
        again="gladly choose" if good else "never choose",
        agree="loved it too" if good else "did not like it either",
        feel="enjoyed" if good else "hated",
    )
    return (
        f'Classify the sentiment of this review as positive or negative: "{text}" '
        "Answer with one word.", "positive" if good else "negative",
    )  # fmt: skip


def _translation(n: int) -> tuple[str, str]:
    words = _WORDS[n // 3 % len(_WORDS)]
    language = ("German", "French", "Spanish")[n % 3]
    asked = f'Translate the word "{words[0]}" into {language}. Answer with one word.'
    return asked, words[1 + n % 3]


def _knowledge(n: int) -> tuple[str, str]:
    asked, value = _FACTS[n]
    return f"Name {asked}. Answer with one or two words.", value


TASKS: dict[str, Callable[[int], tuple[str, str]]] = {
    "mathematics": _mathematics,
    "code": _code,
    "extraction": _extraction,
    "classification": _classification,
    "translation": _translation,
    "knowledge": _knowledge,
}


def made_prompts() -> Iterator[tuple[str, str, str, str, str]]:
    """Half, id, task, prompt and right answer, in the order of the files, by the rule alone."""
    seen = set()
    for number in range(_EACH):
        for task, make in TASKS.items():
            prompt, right = make(number)
            if prompt not in seen:
                seen.add(prompt)
                half = str(_pick(number, f"half of {task}", ("tuning", "report")))
                yield half, f"{task}-{number:02}", task, prompt, right


def grade(task: str, right: str, answer: str) -> int:
    """1 when the answer is right, else 0. ORIGIN.md says the same in words."""
    if task in ("mathematics", "extraction") and right.isdigit():
        numbers = re.findall(r"\d+", answer.replace(",", ""))
        return int(bool(numbers) and numbers[-1] == right)
    if task == "code":
        line = answer.strip().strip("`").strip().splitlines()[0] if answer.strip("` \n") else ""
        return int(line.strip("`'\". ") == right)
    said = _words(answer)
    if task == "classification" and {"positive", "negative"} <= set(said):
        return 0
    return int(any(_stands_in(_words(wanted), said) for wanted in right.split("|")))


def _words(text: str) -> list[str]:
    """Words in small letters, without accents."""
    plain = unicodedata.normalize("NFKD", text.casefold())
    return re.findall(r"\w+", "".join(one for one in plain if not unicodedata.combining(one)))


def _stands_in(wanted: list[str], said: list[str]) -> bool:
    width = len(wanted)
    return any(said[at : at + width] == wanted for at in range(len(said)))


def _rows(half: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in _text(f"{half}.jsonl").splitlines()]


def _text(name: str) -> str:
    return (_FOLDER / name).read_text("utf-8")


@pytest.mark.parametrize("half", ["tuning", "report"])
def test_the_prompts_are_those_of_the_rule(half: str) -> None:
    kept = [(half, row["id"], row["task"], row["prompt"], row["right"]) for row in _rows(half)]
    assert kept == [made for made in made_prompts() if made[0] == half]


@pytest.mark.parametrize("half", ["tuning", "report"])
def test_every_grade_follows_from_the_answer(half: str) -> None:
    for row in _rows(half):
        for model, result in row["results"].items():
            found = grade(row["task"], row["right"], result["answer"])
            assert found == result["quality"], (row["id"], model)


@pytest.mark.parametrize("half", ["tuning", "report"])
def test_every_cost_follows_from_tokens_and_the_stated_prices(half: str) -> None:
    prices = {one.model_id: one for one in read_candidates(CANDIDATES)}
    for row in _rows(half):
        assert set(row["results"]) == set(prices)
        for model, result in row["results"].items():
            one = prices[model]
            assert one.input_price is not None
            assert one.output_price is not None
            nano = result["input_tokens"] * one.input_price
            nano += result["output_tokens"] * one.output_price
            assert nano / 10**15 == pytest.approx(result["cost_usd"], rel=1e-12)


def test_abilities_are_those_of_the_tuning_half() -> None:
    right: dict[tuple[str, str], list[int]] = defaultdict(list)
    for row in _rows("tuning"):
        for model, result in row["results"].items():
            right[model, row["task"]].append(result["quality"])
            right[model, "general"].append(result["quality"])
    for one in read_candidates(CANDIDATES):
        assert dict(one.abilities) == {
            task: round(100 * sum(found) / len(found))
            for (model, task), found in right.items()
            if model == one.model_id
        }


def test_the_files_are_those_that_the_origin_names() -> None:
    origin = _text("ORIGIN.md")
    total = 0
    for name in ("report.jsonl", "tuning.jsonl"):
        content = (_FOLDER / name).read_bytes()
        total += len(content)
        rows = content.count(b"\n")
        assert f"| `{name}` | {rows} |" in origin
        assert hashlib.sha256(content).hexdigest() in origin
    assert total < 400_000


def test_no_prompt_stands_in_both_halves() -> None:
    halves = [{row["prompt"] for row in _rows(half)} for half in ("tuning", "report")]
    assert not halves[0] & halves[1]


def test_the_shipped_set_runs() -> None:
    with REPORT.open("rb") as stream:
        found = evaluate(read_rows(stream), [])
    assert found.rows == len(_rows("report"))
    assert set(found.tasks) == set(TASKS)


def test_grading() -> None:
    assert grade("mathematics", "14", "He has 7 + 7 = 14 cards.") == 1
    assert grade("mathematics", "14", "14 is wrong, it is 15") == 0
    assert grade("mathematics", "1400", "1,400") == 1
    assert grade("code", "BOOK", "`'BOOK'`") == 1
    assert grade("code", "BOOK", "It is BOOK") == 0
    assert grade("classification", "positive", "Positive.") == 1
    assert grade("classification", "positive", "positive or negative") == 0
    assert grade("translation", "école", "L'école") == 1
    assert grade("translation", "árbol", "Arbol") == 1
    assert grade("knowledge", "six|6", "6") == 1
    assert grade("knowledge", "six|6", "sixteen") == 0
    assert grade("knowledge", "blue whale", "The Blue Whale") == 1
    assert grade("knowledge", "K", "Potassium (Kr)") == 0
