"""`recorded`: a drafter that has run already, EAGLE, Medusa, MTP, a draft model or anything else, from what it left.

The trace carries, request by request in its field `spec`, how many tokens each verify step emitted. Replayed, these
steps stand in the same table as those of drafters that run here, counted and priced by the same loop.
"""

from .replaying import as_read, replay_recorded
from .steps import RecordedSteps, recorded_steps

__all__ = ["RecordedSteps", "as_read", "recorded_steps", "replay_recorded"]
