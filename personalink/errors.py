"""Every exception that personalink raises on purpose, in one tree.

    PersonalinkError                     exit 1
    ├── UsageError                       exit 2   what was given is wrong: one line says what, where and the remedy
    │   ├── ConfigError                           a configuration key or value
    │   ├── DataError                             a data file or a record in it
    │   └── PersonaError                          a persona that breaks its bounds or cannot be read
    ├── LMError                          exit 3   a language model could not be asked
    │   ├── Unreachable                           no answer came: refused, reset, timed out, 5xx
    │   ├── DeadlineExceeded                      one request took longer than all its attempts may take together
    │   ├── Unauthorized                          401 or 403
    │   ├── ModelNotFound                         the endpoint does not serve that model
    │   ├── PromptTooLong                         the prompt and its answer do not fit the window
    │   ├── BadRequest                            the server refused the request for another reason (400, 422)
    │   ├── NotAnswered                           a batch's results hold no answer (yet)
    │   └── MalformedReply                        something answered, but not in the protocol (HTML, half a JSON)
    ├── IncompleteRun                    exit 4   the run ended with users unfinished or too many failed answers
    │   └── BudgetExceeded                        the next request could exceed a limit; nothing was sent for it
    ├── IntegrityError                   exit 5   what is on disk does not belong together, or was altered
    │   └── LeakError                             a query's text reached a place where only history may stand
    ├── StorageError                     exit 1   the disk is full, read-only or gone; nothing more is sent
    └── Interrupted                      exit 130 Ctrl-C: drained and sealed; the same command goes on

This file knows no other module. `fatal` marks what no retry and no other user can get past.
"""

from __future__ import annotations


class PersonalinkError(Exception):
    """Base of every deliberate error; `exit_code` is what the command line returns for it."""

    exit_code = 1
    fatal = False


class UsageError(PersonalinkError):
    """What the user gave is wrong; nothing was sent and nothing lost."""

    exit_code = 2


class ConfigError(UsageError):
    """A configuration key or value is unknown, missing or out of range."""


class DataError(UsageError):
    """A data file or a record in it cannot be used; names file, field and remedy."""


class PersonaError(UsageError):
    """A persona breaks its bounds or cannot be read."""


class LMError(PersonalinkError):
    """A language model could not be asked, or its server did not answer in the protocol.

    `retries` is how many further attempts the request took after its first.
    """

    exit_code = 3
    retries = 0


class Unreachable(LMError):
    """No answer came after bounded retries: an outage, which is never an answer."""


class DeadlineExceeded(LMError):
    """All attempts of one request together took longer than `deadline_s`; other requests may still be answered."""


class Unauthorized(LMError):
    """The endpoint refused the key (401, 403). No retry helps."""

    fatal = True


class ModelNotFound(LMError):
    """The endpoint does not serve the model that was asked for. No retry helps."""

    fatal = True


class PromptTooLong(LMError):
    """The prompt and the room for its answer do not fit the model's window."""


class BadRequest(LMError):
    """The server refused this one request (400, 422) for a reason other than its length."""


class NotAnswered(LMError):
    """A batch's results hold no answer to this one request, or say that it failed; the next batch asks for it."""


class MalformedReply(LMError):
    """Something answered, but not in the protocol: HTML from a proxy, half a JSON, no choices."""


class IncompleteRun(PersonalinkError):
    """The run ended with users unfinished, or with more failed answers than allowed."""

    exit_code = 4


class BudgetExceeded(IncompleteRun):
    """The next request could exceed a limit, so it was not sent; a larger budget goes on where this one stopped.

    `whole_run` tells a limit of the run, which stops everyone, from one of a single user.
    """

    def __init__(self, message: str, *, whole_run: bool) -> None:
        super().__init__(message)
        self.whole_run = whole_run


class IntegrityError(PersonalinkError):
    """What is on disk does not belong together, or was altered."""

    exit_code = 5
    fatal = True


class LeakError(IntegrityError):
    """A query's text reached a slice, a rewrite prompt, an exemplar or an index."""


class StorageError(PersonalinkError):
    """What was paid for cannot be kept (disk full, folder read-only or gone), so nothing more is sent."""

    fatal = True


class Interrupted(PersonalinkError):
    """Ctrl-C: requests in flight were drained and what is finished was sealed."""

    exit_code = 130
