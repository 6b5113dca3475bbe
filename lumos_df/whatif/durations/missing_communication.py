"""Communication that a changed job has and its recording lacks."""

from lumos_df.whatif.durations.draft_job import DraftJob
from lumos_df.whatif.durations.modelled_activations import with_activations
from lumos_df.whatif.durations.modelled_context import with_context
from lumos_df.whatif.durations.modelled_gradients import with_gradients
from lumos_df.whatif.durations.modelled_parameters import with_parameters
from lumos_df.whatif.durations.modelled_tokens import with_tokens
from lumos_df.whatif.durations.replaced_collectives import gathers_differ
from lumos_df.whatif.durations.unmeasured import filled


def with_missing(draft: DraftJob) -> DraftJob:
    """Return the job with its communication. Raise `QueryError` where nothing tells what would be sent, or when."""
    old, new = draft.change.old, draft.change.new
    for is_missing, add in (
        ((old.tp or 1) == 1 < (new.tp or 1), with_activations),
        (old.replicas == 1 < new.replicas, with_gradients),
        (old.cp < new.cp, with_context),
        (new.sp and not old.sp, with_tokens),
        (bool(new.zero) and (not old.zero or old.replicas == 1 or gathers_differ(draft.change)), with_parameters),
        (draft.anchor.unmeasured, filled),
    ):
        if is_missing:
            draft = add(draft)
    return draft
