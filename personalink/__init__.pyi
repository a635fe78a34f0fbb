# What type checkers see of `personalink/__init__.py`, which loads these names lazily; a test keeps the two equal.
from personalink.agent import Agent as Agent
from personalink.agent import Answer as Answer
from personalink.config import RunConfig as RunConfig
from personalink.contexts import (
    Context as Context,
)
from personalink.contexts import (
    Placed as Placed,
)
from personalink.contexts import (
    Product as Product,
)
from personalink.contexts import (
    Products as Products,
)
from personalink.contexts import (
    Tools as Tools,
)
from personalink.data import (
    Dataset as Dataset,
)
from personalink.data import (
    Item as Item,
)
from personalink.data import (
    Query as Query,
)
from personalink.data import (
    User as User,
)
from personalink.data import (
    load_lamp as load_lamp,
)
from personalink.data import (
    load_records as load_records,
)
from personalink.data import (
    load_sample as load_sample,
)
from personalink.data import (
    make_manifest as make_manifest,
)
from personalink.errors import (
    BadRequest as BadRequest,
)
from personalink.errors import (
    ConfigError as ConfigError,
)
from personalink.errors import (
    DataError as DataError,
)
from personalink.errors import (
    DeadlineExceeded as DeadlineExceeded,
)
from personalink.errors import (
    IncompleteRun as IncompleteRun,
)
from personalink.errors import (
    IntegrityError as IntegrityError,
)
from personalink.errors import (
    Interrupted as Interrupted,
)
from personalink.errors import (
    LeakError as LeakError,
)
from personalink.errors import (
    LMError as LMError,
)
from personalink.errors import (
    MalformedReply as MalformedReply,
)
from personalink.errors import (
    ModelNotFound as ModelNotFound,
)
from personalink.errors import (
    NotAnswered as NotAnswered,
)
from personalink.errors import (
    PersonaError as PersonaError,
)
from personalink.errors import (
    PersonalinkError as PersonalinkError,
)
from personalink.errors import (
    PromptTooLong as PromptTooLong,
)
from personalink.errors import (
    Unauthorized as Unauthorized,
)
from personalink.errors import (
    Unreachable as Unreachable,
)
from personalink.errors import (
    UsageError as UsageError,
)
from personalink.frames import open_run as open_run
from personalink.lm import (
    Completion as Completion,
)
from personalink.lm import (
    EmbeddedLM as EmbeddedLM,
)
from personalink.lm import (
    EndpointLM as EndpointLM,
)
from personalink.lm import (
    EstimateCounter as EstimateCounter,
)
from personalink.lm import (
    Request as Request,
)
from personalink.lm import (
    ScriptedLM as ScriptedLM,
)
from personalink.lm import (
    connect as connect,
)
from personalink.optimizer import OptimizerConfig as OptimizerConfig
from personalink.persona import Caps as Caps
from personalink.persona import Exemplar as Exemplar
from personalink.persona import PersonaState as PersonaState
from personalink.persona import Rule as Rule
from personalink.persona_fit import fit_persona as fit_persona
from personalink.persona_io import diff as diff
from personalink.personalink import PersonaLink as PersonaLink
from personalink.predictions import Prediction as Prediction
from personalink.refinement import Pass as Pass
from personalink.refinement import Refinement as Refinement
from personalink.running import arun as arun
from personalink.running import run as run
from personalink.tasks import ChoiceTask as ChoiceTask
from personalink.tasks import LabelTask as LabelTask
from personalink.tasks import RatingTask as RatingTask
from personalink.tasks import Task as Task
from personalink.tasks import TextTask as TextTask
from personalink.tasks import task as task

__version__: str
