"""What can be told before money and hours are spent: of a language model, by asking it; of a run, by its settings.

`diagnose` proves what a model does, `look_at_run` what a run will meet, `told_settings` says where values came from.
"""

from personalink.doctor.findings import Finding, render_findings
from personalink.doctor.model import diagnose
from personalink.doctor.place import look_at_run
from personalink.doctor.settings import told_settings

__all__ = ["Finding", "diagnose", "look_at_run", "render_findings", "told_settings"]
