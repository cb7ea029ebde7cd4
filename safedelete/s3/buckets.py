"""Several buckets, each with a store of its own, as one store."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from safedelete.core.item import ObjectRef
from safedelete.core.outcome import ItemOutcome
from safedelete.ports import Gate, ObjectStore, Presence


class Buckets:
    """Sends each object to the store of its bucket. Implements ``ports.ObjectStore``."""

    def __init__(self, stores: Mapping[str, ObjectStore]) -> None:
        self._stores = stores

    def delete(self, refs: Sequence[ObjectRef], *, gate: Gate) -> Mapping[ObjectRef, ItemOutcome]:
        """Delete exactly these objects. Deletes."""
        return {
            ref: found
            for store, mine in self._split(refs)
            for ref, found in store.delete(mine, gate=gate).items()
        }

    def presence(self, refs: Sequence[ObjectRef]) -> Mapping[ObjectRef, Presence]:
        """Ask for each object. Reads only."""
        return self._ask(refs, lambda store, mine: store.presence(mine))

    def shown(self, refs: Sequence[ObjectRef]) -> Mapping[ObjectRef, Presence]:
        """Ask of each key whether there is an object to be read. Reads only."""
        return self._ask(refs, lambda store, mine: store.shown(mine))

    def remaining(self, refs: Sequence[ObjectRef]) -> Mapping[ObjectRef, Presence]:
        """Return those not known to be absent. Reads only."""
        known = [ref for ref in refs if ref.bucket in self._stores]
        left = {ref: Presence.UNKNOWN for ref in refs if ref.bucket not in self._stores}
        return left | {
            ref: found for store, mine in self._split(known) for ref, found in store.remaining(mine).items()
        }

    def _ask(
        self,
        refs: Sequence[ObjectRef],
        ask: Callable[[ObjectStore, Sequence[ObjectRef]], Mapping[ObjectRef, Presence]],
    ) -> Mapping[ObjectRef, Presence]:
        known = [ref for ref in refs if ref.bucket in self._stores]
        seen = dict.fromkeys(refs, Presence.UNKNOWN)
        # A bucket that is not declared any more, of a plan made under an earlier definition, cannot be asked.
        return seen | {
            ref: found for store, mine in self._split(known) for ref, found in ask(store, mine).items()
        }

    def _split(self, refs: Sequence[ObjectRef]) -> Iterator[tuple[ObjectStore, list[ObjectRef]]]:
        for bucket in dict.fromkeys(ref.bucket for ref in refs):
            yield self._stores[bucket], [ref for ref in refs if ref.bucket == bucket]
