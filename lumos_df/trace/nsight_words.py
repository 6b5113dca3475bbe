"""How Kineto writes what Nsight Systems has numbers for."""

from typing import Final

_COPY_WORDS: Final = (
    *("?", "HtoD", "DtoH", "HtoA", "AtoH", "AtoA", "AtoD", "DtoA", "DtoD", "HtoH", "PtoP", "HtoD", "DtoH", "DtoD"),
)
_MEMORY_WORDS: Final = (
    *("Pageable", "Pinned", "Device", "Array", "Managed", "Device Static", "Managed Static", "Unknown"),
)
"""How Kineto writes CUPTI's kinds of copies and of memory, by Nsight's numbers."""
WAIT_WORDS: Final = (
    ("StreamWaitEvent", "Stream Wait Event"),
    ("EventSynchronize", "Event Sync"),
    ("StreamSynchronize", "Stream Sync"),
    ("Synchronize", "Context Sync"),
)
"""How Kineto writes what a call waits for. The types of Nsight's rows have other numbers in other versions."""


def copy_name(packed: int) -> str:
    """Return the name of a copy of some kind above the kinds of memory that it reads and writes, 8 bits each."""
    kind, source, target = packed >> 16, packed >> 8 & 0xFF, packed & 0xFF
    return f"Memcpy {_word(_COPY_WORDS, kind)} ({_word(_MEMORY_WORDS, source)} -> {_word(_MEMORY_WORDS, target)})"


def fill_name(kind: int) -> str:
    """Return the name of a fill of some kind of memory."""
    return f"Memset ({_word(_MEMORY_WORDS, kind)})"


def _word(words: tuple[str, ...], number: int) -> str:
    return words[number] if 0 <= number < len(words) else "Unknown"
