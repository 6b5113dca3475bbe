"""What to change: view `advice`, ranked, and what would not help."""

import duckdb

from lumos_df.base.units import format_ns
from lumos_df.page.section import Columns, Section, by_job, percent, with_plain


def rows(connection: duckdb.DuckDBPyConnection) -> dict[str, Columns]:
    """Return the changes of each job: what is worth it by gain, then what is not; the columns are those of the view.

    A job whose ranks ran several times has the changes of every run.
    """
    return by_job(
        connection,
        """
        SELECT
          job, what, worthwhile, step_ns, gain_ns, gain_pct, low_ns, high_ns, known, rests_on, command
        FROM advice
        ORDER BY job, place
        """,
    )


def section(shown: Columns | None, corpus: str) -> Section:
    """Return the section that stands first; `corpus` is the corpus's name, ready for a shell."""
    if shown is None:
        return Section("No change is known that helps", f"To look for one: `lumos-df advise --corpus {corpus}`")
    note = (
        "Gains of the mean step, each change made by itself to the replayed job, with the interval that holds them 8 "
        "times of 10. Measured: what goes was not there on other ranks or in like calls; replayed: simulated; "
        "modelled: estimated from the hardware. What the job can change stands before what would be bought."
    )
    title = "Nothing was found that makes the step at least 0.5% shorter"
    if shown["worthwhile"][0]:
        # What costs no hardware comes first, however little it is.
        worth = [row for row, of_row in enumerate(shown["worthwhile"]) if of_row]
        gain, step = max((shown["gain_ns"][row], shown["step_ns"][row]) for row in worth)
        title = f"The largest gain is {format_ns(gain)} a step, {percent(gain, step)} of it"
    return Section(title, note, {"advice": with_plain(shown, "what")})
