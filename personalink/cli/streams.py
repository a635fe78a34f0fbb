"""What the commands write: answers to stdout, messages to stderr, whatever became of the two.

A closed or full stream changes no exit code but its own, and a narrow encoding escapes what it cannot show.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from typing import Any, TextIO

from personalink.errors import PersonalinkError


def prepare() -> None:
    """Make both streams there and able to take any text; call it once, before anything is written."""
    for number in (0, 1, 2):  # a closed one would be the first file opened, and be written into
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def as_utf8(word: str) -> str:
    """A word of the command line that a narrow locale took apart, put together again where it was UTF-8."""
    try:
        return os.fsencode(word).decode("utf-8")
    except UnicodeError:
        return word


def out(text: str) -> None:
    """A line of the answer. Where the reader has gone, the rest is dropped.

    Raises:
        PersonalinkError: it cannot be written for another reason, such as a full disk.
    """
    if sys.stdout is not None:
        _written(sys.stdout, text + "\n")


def told(text: str) -> None:
    """A message on stderr; where that cannot be written, nobody is told."""
    if sys.stderr is None:
        return
    try:
        sys.stderr.write(text + "\n")
        sys.stderr.flush()
    except (OSError, ValueError):
        _drop(sys.stderr)


def told_error(error: PersonalinkError) -> int:
    """The one line of an error on stderr; its exit code."""
    told(f"personalink: {error}")
    return error.exit_code


def end(code: int) -> int:
    """Write out what is still held back; the code, or 1 where that was complete and cannot be written."""
    try:
        if sys.stdout is not None:
            _written(sys.stdout, "")
    except PersonalinkError as error:
        return code or told_error(error)
    return code


def _written(stream: TextIO, text: str) -> None:
    try:
        stream.write(text)
        stream.flush()
    except BrokenPipeError:
        _drop(stream)
    except OSError as error:
        _drop(stream)
        msg = f"cannot write to stdout: {error.strerror or error}"
        raise PersonalinkError(msg) from None


def _drop(stream: Any) -> None:
    """Send what is held back, and all that follows, nowhere."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
