"""All readers, by name; the name decides the mutations too."""

from __future__ import annotations

from tests.hostile.answer_readers import ANSWERS
from tests.hostile.given_readers import GIVEN
from tests.hostile.kept_readers import KEPT
from tests.hostile.readers import Reader
from tests.hostile.registry_readers import REGISTRY
from tests.hostile.stored_readers import STORED
from tests.hostile.trained_readers import TRAINED

READERS: dict[str, Reader] = {**GIVEN, **ANSWERS, **KEPT, **STORED, **TRAINED, **REGISTRY}
