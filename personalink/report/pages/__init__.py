"""The persona pages: one folder of static HTML in which a run is read, user by user.

They open from a disk, ask nothing of a network, and can be read without a script; a script sorts and filters the list.
"""

from personalink.report.pages.folder import Written, write

__all__ = ["Written", "write"]
