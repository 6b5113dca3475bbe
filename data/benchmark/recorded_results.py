"""Results of calls, kept as long as the recorded ones were, for the calls that read them.

Memory that is let go at once would be warm when it is taken again.
"""

from collections import defaultdict

import torch
from recorded_operators import Call


class Results:
    """The results of one repetition that are still kept, and the calls that read them.

    Where it was not recorded which result an operator reads, it is taken to be the latest that is kept and has its
    shape, strides and type: a net reads what it has just made, and its backward pass what was made last of the rest.
    """

    def __init__(self, releases):
        self.releases = releases  # behind each call the calls whose results are let go
        self.kept = {number for released in releases for number in released}
        self.reads = [()] * len(releases)  # of each call: list and place of an argument, a call, which of its results
        self.held = {}
        self.counts = {}  # of each call: how many results
        self.touched = set()  # calls whose result is kept, and those behind which one is let go

    def find(self, calls):
        """Run the calls once, but for those that are no `Call`, and find which results each of them reads."""
        latest, owner, shared = defaultdict(list), {}, defaultdict(list)
        for number, call in enumerate(calls if self.kept else ()):
            result = self.first(number, call, latest) if isinstance(call, Call) else None
            self.counts[number] = len(several(result))
            for place, tensor in enumerate(several(result)):
                if not isinstance(tensor, torch.Tensor) or tensor.layout is not torch.strided:
                    continue  # a sparse one has no storage of its own
                storage = tensor.untyped_storage().data_ptr()
                if number in self.kept:
                    owner.setdefault(storage, number)
                if storage in owner:
                    if may_be_read(tensor, several(result)):
                        latest[kind(tensor)].append((number, place, owner[storage], storage))
                    shared[owner[storage]].append(number)
                    self.held[number] = several(result)
            for released in self.releases[number]:
                gone = {released, *shared.pop(released, ())}  # views of a result go with it
                self.kept |= gone
                self.releases[number] = [*self.releases[number], *gone.difference(self.releases[number])]
                owner = {storage: each for storage, each in owner.items() if each != released}
                latest = defaultdict(
                    list,
                    {each: [entry for entry in entries if entry[0] not in gone] for each, entries in latest.items()},
                )
                for each in gone:
                    self.held.pop(each, None)
        for number, released in enumerate(self.releases):  # of what outlives the step
            views = {each for outliving in released for each in shared[outliving]}
            self.kept |= views
            self.releases[number] = [*released, *views.difference(released)]
        self.touched = self.kept.union(number for number, released in enumerate(self.releases) if released)

    def first(self, number, call, latest):
        """Run a call with the latest results that it can read; without them where it does not take them."""
        taken = []
        for place in call.reads:
            arguments, where, maker = place
            found = latest[kind(arguments[where])]
            if maker is None:
                free = [entry[:2] for entry in found if entry[:2] not in [each[2:] for each in taken]]
            else:
                turn, maker = divmod(maker, len(self.reads))
                free = [entry for entry in found if entry[2] == maker]
                storages = [*dict.fromkeys(entry[3] for entry in free)][: turn + 1]  # in the order of the results
                free = [entry[:2] for entry in free if entry[3] == storages[-1]]
            if free:
                taken.append((arguments, where, *free[-1]))
        self.reads[number] = [(arguments, where, arguments[where], *entry) for arguments, where, *entry in taken]
        reads = self.reads[number]
        self.lend(reads)
        try:
            return call()
        except Exception:  # whatever an operator raises of values that it does not take
            self.take_back(reads)
            self.reads[number] = ()
            return call()
        finally:
            self.take_back(reads)

    def lend(self, reads):
        """Put what a call reads into its arguments; what is not there stays what it was."""
        held = self.held
        for arguments, place, _, maker, which in reads:
            results = held.get(maker)
            if results:
                arguments[place] = results[which]

    def take_back(self, reads):
        """Take a call's results out of its arguments, so that they can go."""
        for arguments, place, own, _, _ in reads:
            arguments[place] = own

    def done(self, number, result):
        """Keep a call's result where it was kept, and let those go that were let go behind it."""
        held = self.held
        if number in self.kept:
            held[number] = several(result)
        for released in self.releases[number]:
            held.pop(released, None)


def several(result):
    """Return the results of a call, also where it is one."""
    return result if isinstance(result, (tuple, list)) else (result,)


def may_be_read(tensor, results):
    """Return whether others may read a result: integers only beside numbers, whose places or counts they then are.

    What integers are made of is drawn, so that others may be no place in what they are read for.
    """
    whole = not tensor.is_floating_point() and tensor.dtype not in (torch.bool, torch.uint8)
    return not whole or any(isinstance(each, torch.Tensor) and each.is_floating_point() for each in results)


def kind(tensor):
    """Return what two tensors have in common of which one may stand for the other."""
    return tensor.shape, tensor.stride(), tensor.dtype, tensor.device
