"""Builds the two samples from their raw files. Deterministic: the same inputs give the same bytes.

    python scripts/build_samples.py news  --questions lamp2n_like_questions.json --outputs lamp2n_like_outputs.json
    python scripts/build_samples.py films --movielens ml-latest-small

`news` takes questions and outputs in the official LaMP-2 news shape (with `date` and `user_id`) and writes them
compactly into personalink/data/samples/. `films` takes a folder with MovieLens' movies.csv and ratings.csv and writes
samples/films/ratings.csv: 40 people with 30 to 200 ratings each, none of whose rounded ratings is half of theirs or
more, and at least four different ones; which 40, is decided by the SHA-256 of the user's id.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import io
import json
import math
from collections import Counter, defaultdict
from datetime import UTC, datetime
from pathlib import Path

from personalink.canonical import write_atomic
from personalink.data import Dataset, load_lamp, load_records, top_label_share

ROOT = Path(__file__).resolve().parents[1]
FILMS, LEAST, MOST, TOP_SHARE, DISTINCT = 40, 30, 200, 0.5, 4
Rating = tuple[int, int, int]
"""(seconds since 1970, film id, rating 1–5)"""


def build_news(questions: Path, outputs: Path, folder: Path) -> Dataset:
    """Write news_questions.json and news_outputs.json, a question or gold a line; return what they load as."""
    asked = json.loads(questions.read_text(encoding="utf-8"))
    golds = json.loads(outputs.read_text(encoding="utf-8"))
    for question in asked:
        question["user_id"] = str(question["user_id"])
    body = ",\n".join(_compact(question) for question in asked)
    write_atomic(folder / "news_questions.json", f"[\n{body}\n]\n")
    body = ",\n".join(_compact(gold) for gold in golds["golds"])
    write_atomic(folder / "news_outputs.json", f'{{"task":"LaMP_2","golds":[\n{body}\n]}}\n')
    return load_lamp(folder / "news_questions.json", folder / "news_outputs.json", task="lamp2", source="news-authors")


def build_films(movielens: Path, folder: Path) -> Dataset:
    """Write ratings.csv, ordered by user and time; return what it loads as."""
    texts = {}
    with (movielens / "movies.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            genres = ", ".join(genre for genre in row["genres"].split("|") if not genre.startswith("("))
            texts[int(row["movieId"])] = row["title"].strip() + (f" — genres: {genres}" if genres else "")
    ratings: dict[int, list[Rating]] = defaultdict(list)
    with (movielens / "ratings.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            rating = (int(row["timestamp"]), int(row["movieId"]), whole_stars(float(row["rating"])))
            ratings[int(row["userId"])].append(rating)
    fit = [user for user, rows in ratings.items() if _varied(rows)]
    chosen = sorted(sorted(fit, key=lambda user: hashlib.sha256(f"films/{user}".encode()).hexdigest())[:FILMS])
    table = io.StringIO(newline="")
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow(("user", "id", "date", "label", "input"))
    for user in chosen:
        for second, film, stars in sorted(ratings[user]):
            date = datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")
            writer.writerow((user, film, date, stars, texts[film]))
    write_atomic(folder / "ratings.csv", table.getvalue())
    return load_records(folder / "ratings.csv", task="films", source="films")


def whole_stars(rating: float) -> int:
    """MovieLens' half stars as 1 to 5: half up, then clamped."""
    return min(5, max(1, math.floor(rating + 0.5)))


def _varied(rows: list[Rating]) -> bool:
    """Whether a user has enough ratings, not too many, and of different values."""
    counts = Counter(stars for _, _, stars in rows)
    top = max(counts.values()) / len(rows)
    return LEAST <= len(rows) <= MOST and len(counts) >= DISTINCT and top < TOP_SHARE


def _compact(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def main() -> None:
    """Build one sample and say what is in it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="sample", required=True)
    news = commands.add_parser("news", help="the news sample, which ships in the package")
    news.add_argument("--questions", type=Path, required=True, help="questions file in the LaMP-2 news shape")
    news.add_argument("--outputs", type=Path, required=True, help="its outputs file")
    news.add_argument("--to", type=Path, default=ROOT / "personalink" / "data" / "samples", help="folder to write to")
    films = commands.add_parser("films", help="the film-ratings sample, which stays out of the package")
    films.add_argument("--movielens", type=Path, required=True, help="folder with movies.csv and ratings.csv")
    films.add_argument("--to", type=Path, default=ROOT / "samples" / "films", help="folder to write to")
    args = parser.parse_args()
    data = (
        build_news(args.questions, args.outputs, args.to)
        if args.sample == "news"
        else build_films(args.movielens, args.to)
    )
    sizes = sorted(len(user.history) for user in data.users)
    varied = sum(top_label_share(user) < 0.6 for user in data.users)
    print(
        f"{data.source}: {len(data.users)} users, {sum(sizes)} items ({sizes[0]} to {sizes[-1]} a user), "
        f"left out {dict(data.dropped) or 'nothing'}"
    )
    print(f"{varied} users have a top label share under .6; query labels {dict(Counter(data.golds.values()))}")


if __name__ == "__main__":
    main()
