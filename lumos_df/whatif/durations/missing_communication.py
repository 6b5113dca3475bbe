"""Communication that a changed job has and its recording lacks."""

from lumos_df.whatif.durations.draft_job import DraftJob
from lumos_df.whatif.durations.modelled_activations import with_activations
from lumos_df.whatif.durations.modelled_gradients import with_gradients
from lumos_df.whatif.durations.unmeasured import filled


def with_missing(draft: DraftJob) -> DraftJob:
    """Return the job with its communication. Raise `QueryError` where nothing tells what would be sent, or when."""
    old, new = draft.change.old, draft.change.new
    for is_missing, add in (
        ((old.tp or 1) == 1 < (new.tp or 1), with_activations),
        ((old.dp or 1) == 1 < (new.dp or 1), with_gradients),
        (draft.anchor.unmeasured, filled),
    ):
        if is_missing:
            draft = add(draft)
    return draft
