"""Downloads the official LaMP files from their publisher, checks them, and lays them out where `find_lamp` looks.

    python scripts/download_lamp.py --root data/lamp --tasks news ratings --split-kind user --splits dev

Writes `<root>/<task>/<user|time>/<split>_{questions,outputs}.json` (tasks are lamp1, lamp2, …; test splits have no
outputs) and `<root>/SHA256SUMS`. Files that are there already are not fetched again: the same command goes on where it
stopped.

About the sums: the publisher gives none. Those written here are of what came the first time, so they tell whether a
file changed since (on this disk, or at the publisher), not whether it was right then. Each file is also read with
`load_lamp`, which tells whether it is what it should be.

LaMP's terms are the publisher's; read them before you use or pass on the files. Exit codes: 0 all there, 2 wrong
arguments or unusable files, 3 the network or the publisher did not answer, 5 a file is not what SHA256SUMS says.
"""

from __future__ import annotations

import argparse
import http.client
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import BinaryIO

from personalink.canonical import file_digest, write_atomic
from personalink.data import load_lamp
from personalink.data.lamp_files import SPLIT_KINDS, SPLITS
from personalink.errors import DataError, IntegrityError, PersonalinkError, Unreachable

BASE_URL = "https://ciir.cs.umass.edu/downloads/LaMP"
TASKS = {
    "citations": ("lamp1", "LaMP_1"),
    "news": ("lamp2", "LaMP_2"),
    "movies": ("lamp2_tags", "LaMP_2/new"),
    "ratings": ("lamp3", "LaMP_3"),
    "headlines": ("lamp4", "LaMP_4"),
    "titles": ("lamp5", "LaMP_5"),
    "tweets": ("lamp7", "LaMP_7"),
}
SUMS = "SHA256SUMS"
BLOCK = 1 << 18


class Sums:
    """The file SHA256SUMS: relative path → digest, in the format of `sha256sum`."""

    def __init__(self, root: Path) -> None:
        self.path = root / SUMS
        lines = self.path.read_text(encoding="utf-8").splitlines() if self.path.is_file() else []
        self.known = {name: digest for digest, _, name in (line.partition("  ") for line in lines) if name}

    def check(self, file: Path) -> None:
        """Compare a file with its sum, or write the sum down when there is none yet."""
        name = file.relative_to(self.path.parent).as_posix()
        digest = file_digest(file)
        if self.known.get(name, digest) != digest:
            raise IntegrityError(
                f"{file}: not what {SUMS} says (altered here, or new at the publisher); remove one of the two"
            )
        if name not in self.known:
            self.known[name] = digest
            self.save()

    def forget(self, file: Path) -> None:
        """Take a file's sum out."""
        if self.known.pop(file.relative_to(self.path.parent).as_posix(), None):
            self.save()

    def save(self) -> None:
        """Write the file anew."""
        write_atomic(self.path, "".join(f"{digest}  {name}\n" for name, digest in sorted(self.known.items())))


def fetch(url: str, file: Path, sums: Sums, timeout: float) -> None:
    """Bring one address into `file`, whole or not at all.

    Raises:
        Unreachable: no answer, an error answer, or one that broke off.
        DataError: what came is not JSON (a sign-in page, for one).
        IntegrityError: it is not what SHA256SUMS says.
    """
    part = file.with_name(file.name + ".part")
    file.parent.mkdir(parents=True, exist_ok=True)
    try:
        with part.open("wb") as target:
            _receive(url, target, file.name, timeout)
        with part.open("rb") as start:
            if start.read(64).lstrip(b"\xef\xbb\xbf \r\n\t")[:1] not in (b"[", b"{"):
                raise DataError(f"{url}: what came is not JSON (a page of a proxy or a sign-in?)")
        name = file.relative_to(sums.path.parent).as_posix()
        if sums.known.get(name, file_digest(part)) != file_digest(part):
            raise IntegrityError(
                f"{url}: not what {SUMS} says of {name}; the publisher changed it, so start in a new --root"
            )
        part.replace(file)
    finally:
        part.unlink(missing_ok=True)
        for folder in list(file.parents)[:3]:
            if not any(folder.iterdir()):
                folder.rmdir()
    sums.check(file)


def _receive(url: str, target: BinaryIO, name: str, timeout: float) -> None:
    """Copy the answer of one address block by block, telling progress on stderr."""
    done, told = 0, 0.0
    try:
        with urllib.request.urlopen(url, timeout=timeout) as answer:
            length = answer.headers.get("Content-Length")
            while block := _block(answer, url):
                target.write(block)
                done += len(block)
                if time.monotonic() - told > 0.5:
                    told = time.monotonic()
                    of = f" of {int(length) / 1e6:.1f}" if length else ""
                    print(f"\r{name}: {done / 1e6:.1f}{of} MB ", end="", file=sys.stderr, flush=True)
    except urllib.error.HTTPError as error:
        raise Unreachable(f"{url}: the publisher answered {error.code} {error.reason}") from None
    except (urllib.error.URLError, http.client.HTTPException, TimeoutError, ConnectionError, ValueError) as error:
        raise Unreachable(f"{url}: no answer ({getattr(error, 'reason', error)})") from None
    print(f"\r{name}: {done / 1e6:.1f} MB    ", file=sys.stderr)
    if length is not None and done != int(length):
        raise Unreachable(f"{url}: broke off after {done} of {length} bytes; run the same command again")


def _block(answer: http.client.HTTPResponse, url: str) -> bytes:
    """The next block of an answer; b"" at its end. Failures to read are told apart here from failures to write."""
    try:
        return answer.read(BLOCK)
    except (OSError, http.client.HTTPException) as error:
        raise Unreachable(f"{url}: broke off ({error or type(error).__name__}); run the same command again") from None


def bring(task: str, split: str, args: argparse.Namespace, sums: Sums) -> None:
    """One split of one task: fetch what is missing, check sums, read it as a dataset."""
    ours, theirs = TASKS[task]
    folder = args.root / ours / args.split_kind
    base = f"{args.base_url}/time" if args.split_kind == "time" else args.base_url
    files = [
        folder / f"{split}_{what}.json" for what in ("questions", "outputs") if (split, what) != ("test", "outputs")
    ]
    new = []
    for file in files:
        if file.is_file():
            sums.check(file)
            print(f"{file}: there already", file=sys.stderr)
        else:
            fetch(f"{base}/{theirs}/{split}/{file.name}", file, sums, args.timeout)
            new.append(file)
    if args.no_check:
        return
    try:
        data = load_lamp(*files, task=ours)
    except DataError:
        for file in new:
            file.unlink()
            sums.forget(file)
        raise
    print(
        f"{data.source}: {len(data.users)} users, {len(data.golds)} golds; left out: {dict(data.dropped) or 'nothing'}"
    )


def main(argv: list[str] | None = None) -> int:
    """Parse, download, and return the exit code; an error is one line on stderr."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, required=True, help="folder to write to")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=["news", "ratings"], help="default: news ratings")
    parser.add_argument("--split-kind", choices=SPLIT_KINDS, default="user", help="default: user")
    parser.add_argument("--splits", nargs="+", choices=SPLITS, default=["dev"], help="default: dev")
    parser.add_argument("--base-url", default=BASE_URL, help="a mirror of the publisher's folder")
    parser.add_argument("--timeout", type=float, default=60.0, help="seconds without a byte; default 60")
    parser.add_argument("--no-check", action="store_true", help="do not read the files after downloading them")
    args = parser.parse_args(argv)
    args.base_url = args.base_url.rstrip("/")
    try:
        sums = Sums(args.root)
        for task in args.tasks:
            for split in args.splits:
                bring(task, split, args, sums)
    except PersonalinkError as error:
        print(f"download_lamp: {error}", file=sys.stderr)
        return error.exit_code
    except OSError as error:
        print(f"download_lamp: cannot write under {args.root}: {error.strerror or error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("download_lamp: stopped; whole files stay, the same command goes on", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
