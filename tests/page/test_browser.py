"""The page in a browser: it draws, says nothing on the console, and shows what SQL gives."""

from pathlib import Path

import pytest

from lumos_df.corpus.catalog import connect
from lumos_df.page.write import write
from tests.page.browser import Browser, Dom
from tests.trace.literal import corpus_of, kernel, launch, op

DARK = "--blink-settings=preferredColorScheme=0"


@pytest.fixture(scope="module")
def page(played_corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("page") / "page.html"
    write(played_corpus, file)
    return file


@pytest.fixture(scope="module")
def dom(browser: Browser, page: Path) -> Dom:
    """The page as it opens, with the job on GPUs; all numbers unfolded."""
    return browser.dom(page)


def shown(corpus: Path, query: str) -> list[tuple[str, ...]]:
    """Return a query's rows as the page writes raw values."""
    with connect(corpus) as connection:
        rows = connection.execute(query).fetchall()
    return sorted(
        tuple("" if value is None else f"{value:g}" if isinstance(value, float) else str(value) for value in row)
        for row in rows
    )


def table(dom: Dom, name: str, *columns: str) -> list[tuple[str, ...]]:
    return sorted(tuple(row[column] for column in columns) for row in dom.tables[name])


JOB = "WHERE job = 'gpu_generated'"


def test_every_section_is_drawn(dom: Dom) -> None:
    assert set(dom.sections) == {
        "breakdown", "timeline", "kernels", "path", "stragglers", "collectives", "overlap", "busy", "memory", "replay",
    }  # fmt: skip
    # Two layers a chart, and a chart a section but for the tables: of SM utilisation there are two.
    assert dom.count("canvas") == 2 * 9


def test_numbers_of_the_document_are_those_of_the_views(dom: Dom, played_corpus: Path) -> None:
    breakdown = (
        "rank",
        "step",
        "step_ns",
        "exposed_compute_ns",
        "overlapped_ns",
        "exposed_communication_ns",
        "exposed_waiting_ns",
        "exposed_transfer_ns",
        "other_ns",
        "idle_ns",
    )
    assert table(dom, "breakdown.steps", *breakdown) == shown(
        played_corpus, f"SELECT breakdown.rank, {', '.join(breakdown[1:])} FROM breakdown {JOB}"
    )
    straggler = ("rank", "step", "collectives", "times_last", "waiting_ns", "made_others_wait_ns")
    assert table(dom, "stragglers.stragglers", *straggler) == shown(
        played_corpus, f"SELECT {', '.join(straggler)} FROM straggler WHERE job = 'gpu_generated'"
    )
    replay = ("step", "recorded_ns", "replayed_ns", "unexplained_ns", "start_error_p99_ns")
    assert table(dom, "replay.replays", *replay) == shown(
        played_corpus, f"SELECT {', '.join(replay)} FROM replay_error {JOB}"
    )
    assert table(dom, "path.kinds", "kind", "time_ns") == shown(
        played_corpus, f"SELECT kind, sum(total_ns)::BIGINT FROM critical_path_summary {JOB} GROUP BY kind"
    )
    assert table(dom, "memory.memory", "rank", "peak_bytes") == shown(
        played_corpus,
        f"SELECT memory_timeline.rank, max(allocated_bytes) FROM memory_timeline {JOB} AND device_type = 'gpu' "
        "GROUP BY ALL",
    )
    assert table(dom, "kernels.families", "family", "total_ns", "calls") == shown(
        played_corpus,
        f"SELECT family, sum(total_ns)::BIGINT, sum(calls)::BIGINT FROM kernel_summary {JOB} GROUP BY family",
    )


def test_tiles_are_the_summary(dom: Dom, played_corpus: Path) -> None:
    columns = (
        "mean_step_ns",
        "ranks",
        "steps",
        "exposed_compute_pct",
        "overlapped_pct",
        "exposed_communication_pct",
        "exposed_waiting_pct",
        "other_pct",
    )
    (expected,) = shown(played_corpus, f"SELECT {', '.join(columns)} FROM corpus_summary WHERE job = 'gpu_generated'")
    assert tuple(dom.values.values()) == expected


def test_the_theme_follows_the_system(browser: Browser, page: Path) -> None:
    for flags, dark in (([], False), ([DARK], True)):
        (root,) = [given for name, given in browser.dom(page, *flags, numbers=False).elements if name == "html"]
        assert (root.get("class") == "dark") is dark


def test_a_click_on_a_column_sorts(browser: Browser, page: Path) -> None:
    script = """
        const inside = (what) => [...document.querySelectorAll(`[data-table="breakdown.steps"] ${what}`)];
        const column = () => inside("td:nth-child(3)").map((cell) => Number(cell.dataset.v));
        const click = () => inside('th[data-column="step_ns"] button')[0].click();
        const seen = [];
        for (const details of document.querySelectorAll("details")) details.dispatchEvent(new Event("toggle"));
        click(); seen.push(column());
        click(); seen.push(column());
        return seen;
    """
    down, up = browser.drive(page, script)
    assert len(down) == 12
    assert down == sorted(down, reverse=True)
    assert up == sorted(down)


def test_keys_and_the_pointer_tell_values(browser: Browser, page: Path) -> None:
    script = """
        const chart = document.querySelector('section[data-section="breakdown"] canvas[tabindex="0"]');
        const tip = document.getElementById("tip");
        const seen = [];
        chart.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowRight" })); seen.push(tip.textContent);
        chart.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowRight" })); seen.push(tip.textContent);
        chart.dispatchEvent(new KeyboardEvent("keydown", { key: "Escape" })); seen.push(tip.hidden);
        const area = chart.getBoundingClientRect();
        const place = { clientX: area.right - 30, clientY: area.top + 100 };
        chart.dispatchEvent(new PointerEvent("pointermove", place)); seen.push(tip.textContent);
        return seen;
    """
    first, second, hidden, last = browser.drive(page, script)
    assert first.startswith("rank 0, step 2")
    assert second.startswith("rank 1, step 2")
    assert hidden is True
    assert last.startswith("rank 3, step 4")


def test_the_timeline_zooms(browser: Browser, page: Path) -> None:
    script = """
        const chart = document.querySelector('section[data-section="timeline"] canvas');
        const buttons = [...document.querySelectorAll('section[data-section="timeline"] button')];
        const button = (name) => buttons.find((one) => one.textContent === name);
        const seen = [chart.toDataURL()];
        button("zoom in").click(); seen.push(chart.toDataURL());
        button("whole step").click(); seen.push(chart.toDataURL());
        return [seen[0] === seen[1], seen[0] === seen[2]];
    """
    assert browser.drive(page, script) == [False, True]


def test_names_of_a_trace_are_text(browser: Browser, tmp_path: Path) -> None:
    nasty = '<img src=x onerror="document.title=1"><script>document.title=2</script>'
    corpus_of(tmp_path, [op(nasty, 0, 90), launch(10, 5, 1), kernel(nasty, 20, 30, correlation=1)])
    write(tmp_path / "corpus", tmp_path / "page.html")
    dom = browser.dom(tmp_path / "page.html")
    assert dom.count("img") == 0
    assert dom.count("script") == 2
    assert nasty in dom.texts
    assert any(text.startswith("lumos-df: ") for text in dom.texts)


def test_whatever_lacks_it_draws(browser: Browser, tmp_path: Path) -> None:
    corpus_of(tmp_path, [op("aten::mm", 0, 90)])
    write(tmp_path / "corpus", tmp_path / "page.html")
    dom = browser.dom(tmp_path / "page.html")
    assert "No kernel in these traces" in dom.texts
    assert dom.count("canvas") == 2 * 2
