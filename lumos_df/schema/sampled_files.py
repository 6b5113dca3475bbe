"""What a trace is warned of when other files of its job were left out, and how that is found again."""

from typing import Final

SAMPLED: Final = "one of {chosen:,} files read of {files:,}: --sample {asked}"
FILES: Final = r"one of [0-9,]+ files read of ([0-9,]+): --sample [0-9]+"
"""Regular expression of it; its group is the number of files that the job has."""
