"""Users, their labelled history and their queries: loaders, samples, and the frozen choice of users of a run."""

from personalink.data.lamp import load_lamp
from personalink.data.lamp_files import find_lamp
from personalink.data.lamp_forms import CITATION_LABELS, NEWS_LABELS, RATING_LABELS, TAG_LABELS
from personalink.data.manifest import Manifest, ManifestEntry, data_digest, make_manifest, top_label_share
from personalink.data.records import load_records
from personalink.data.samples import load_sample, sample_path
from personalink.data.siblings import SiblingIndex
from personalink.data.types import Dataset, Item, Query, User

__all__ = [
    "CITATION_LABELS",
    "NEWS_LABELS",
    "RATING_LABELS",
    "TAG_LABELS",
    "Dataset",
    "Item",
    "Manifest",
    "ManifestEntry",
    "Query",
    "SiblingIndex",
    "User",
    "data_digest",
    "find_lamp",
    "load_lamp",
    "load_records",
    "load_sample",
    "make_manifest",
    "sample_path",
    "top_label_share",
]
