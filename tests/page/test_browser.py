"""The page in a browser: it draws, says nothing on the console, and shows what SQL gives."""

from pathlib import Path

import pytest

from lumos_df.corpus.catalog import connect
from lumos_df.estimate.grid import Grid
from lumos_df.estimate.search import Search
from lumos_df.page.replays import PATH_KINDS
from lumos_df.page.write import write, write_sweep
from tests.page.browser import Browser, Dom
from tests.trace.literal import corpus_of, kernel, launch, op

UNFOLD = """
    for (const details of document.querySelectorAll("details")) {
      details.open = true;
      details.dispatchEvent(new Event("toggle"));
    }
"""
"""Writes the tables at once: a browser tells of what was unfolded only later."""


@pytest.fixture(scope="module")
def page(played_corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("page") / "page.html"
    write(played_corpus, file)
    return file


@pytest.fixture(scope="module")
def dom(browser: Browser, page: Path) -> Dom:
    """The page as it opens, with the job on GPUs; all numbers unfolded."""
    browser.open(page, numbers=True)
    return browser.dom()


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
    assert dom.sections[:5] == ["jobs", "advice", "breakdown", "timeline", "path"]
    assert set(dom.sections[5:]) == {"kernels", "stragglers", "collectives", "busy", "memory"}
    # Two layers a chart, and a chart a section but for advice, path and kernels, which are tables.
    assert dom.count("canvas") == 2 * 6


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
    assert table(dom, "path.replays", *replay) == shown(
        played_corpus, f"SELECT {', '.join(replay)} FROM replay_error {JOB}"
    )
    # Twelve steps: three of each of four ranks.
    assert table(dom, "path.kinds", "kind", "mean_ns") == shown(
        played_corpus, f"SELECT kind, round(sum(total_ns) / 12)::BIGINT FROM critical_path_summary {JOB} GROUP BY kind"
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


def test_the_mean_step_is_the_summary(dom: Dom, played_corpus: Path) -> None:
    columns = (
        "exposed_compute_pct",
        "overlapped_pct",
        "exposed_transfer_pct",
        "exposed_waiting_pct",
        "other_pct",
    )
    (expected,) = shown(played_corpus, f"SELECT {', '.join(columns)} FROM corpus_summary WHERE job = 'gpu_generated'")
    assert tuple(dom.values[name] for name in columns) == expected


def test_advice_stands_first_and_is_the_view(dom: Dom, played_corpus: Path) -> None:
    listed = [
        tuple(given["data-v"] for _, given in dom.elements if given.get("data-advice") == name)
        for name in ("what", "gain_ns", "gain_pct")
    ]
    expected = shown(
        played_corpus, "SELECT what, gain_ns, gain_pct FROM advice WHERE job = 'gpu_generated' AND worthwhile"
    )
    assert sorted(zip(*listed, strict=True)) == expected
    commands = shown(played_corpus, f"SELECT command FROM advice {JOB} AND worthwhile")
    assert {f"lumos-df {command} --corpus {played_corpus}" for (command,) in commands} <= set(dom.commands)


def test_the_badge_is_the_error_of_the_replay(dom: Dom, played_corpus: Path) -> None:
    (badge,) = [given["data-accuracy"] for _, given in dom.elements if "data-accuracy" in given]
    assert [(badge,)] == shown(played_corpus, f"SELECT round(avg(abs(error_pct)), 2) FROM replay_error {JOB}")


def test_jobs_stand_side_by_side(browser: Browser, dom: Dom, page: Path, played_corpus: Path) -> None:
    columns = ("job", "ranks", "steps", "mean_step_ns", "exposed_waiting_pct")
    assert table(dom, "jobs.jobs", *columns) == shown(played_corpus, f"SELECT {', '.join(columns)} FROM corpus_summary")
    script = """
        const title = () => document.querySelector("h1").textContent;
        const seen = [title()];
        const names = [...document.querySelectorAll('[data-table="jobs.jobs"] button')];
        names.find((button) => button.textContent === "cpu_ddp").click();
        return [...seen, title(), document.querySelector("#head select").selectedOptions[0].textContent];
    """
    browser.open(page)
    before, after, job = browser.run(script)
    assert "on 4 ranks" in before
    assert "nothing on a GPU was recorded" in after
    assert job == "cpu_ddp"


def test_the_theme_follows_the_system_until_one_is_chosen(browser: Browser, page: Path) -> None:
    script = """
        const root = document.documentElement;
        const theme = [...document.querySelectorAll("#head select")].at(-1);
        const seen = [root.classList.contains("dark")];
        for (theme.value of ["dark", "light"]) {
          theme.dispatchEvent(new Event("change"));
          seen.push(root.classList.contains("dark"));
        }
        return seen;
    """
    for dark in (False, True):
        browser.open(page, dark=dark)
        assert browser.run(script) == [dark, True, False]


@pytest.mark.parametrize("dark", [False, True])
def test_texts_can_be_read_on_what_they_stand(browser: Browser, page: Path, *, dark: bool) -> None:
    """The contrast of WCAG's level AA, of everything that is written in the document."""
    script = """
        const channels = (colour) => colour.match(/[\\d.]+/g).map(Number);
        const light = (share) => (share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4);
        const luminance = ([r, g, b]) => 0.2126 * light(r / 255) + 0.7152 * light(g / 255) + 0.0722 * light(b / 255);
        const ground = (element) => {
          const colour = channels(getComputedStyle(element).backgroundColor);
          return colour.length === 3 || colour[3] === 1 ? colour : ground(element.parentElement);
        };
        const faint = new Set();
        const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
        while (texts.nextNode()) {
          const { parentElement: element, data } = texts.currentNode;
          if (!data.trim() || !element.checkVisibility()) continue;
          const both = [channels(getComputedStyle(element).color), ground(element)].map(luminance);
          const contrast = (Math.max(...both) + 0.05) / (Math.min(...both) + 0.05);
          if (contrast < 4.5) faint.add(`${element.tagName}.${element.className}: ${data}`);
        }
        return [...faint];
    """
    browser.open(page, dark=dark)
    browser.run(UNFOLD)
    assert browser.run(script) == []


def test_a_click_on_a_column_sorts(browser: Browser, page: Path) -> None:
    script = f"""
        const inside = (what) => [...document.querySelectorAll(`[data-table="breakdown.steps"] ${{what}}`)];
        const column = () => inside("td:nth-child(3)").map((cell) => Number(cell.dataset.v));
        const click = () => inside('th[data-column="step_ns"] button')[0].click();
        const seen = [];
        {UNFOLD}
        click(); seen.push(column());
        click(); seen.push(column());
        return seen;
    """
    browser.open(page)
    down, up = browser.run(script)
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
    browser.open(page)
    first, second, hidden, last = browser.run(script)
    assert first.startswith("rank 0, step 2")
    assert second.startswith("rank 1, step 2")
    assert hidden is True
    assert last.startswith("rank 3, step 4")


def test_the_keyboard_reaches_every_control_and_works_it(browser: Browser, page: Path) -> None:
    """Tab goes through the page in the order in which it is read, and what has the focus is seen."""
    browser.open(page)
    wanted, *_ = browser.run(
        """
        const able = [...document.querySelectorAll("button, select, summary, [tabindex='0']")];
        const seen = able.filter((control) => control.checkVisibility());
        seen.forEach((control, number) => { control.dataset.number = String(number); });
        return [seen.length];
        """
    )
    reached = []
    for _ in range(wanted):
        browser.press("Tab")
        reached.append(
            browser.run(
                """
                const { dataset } = document.activeElement;
                const { outlineStyle, outlineWidth } = getComputedStyle(document.activeElement);
                return [Number(dataset.number), outlineStyle !== "none" && parseFloat(outlineWidth) > 0];
                """
            )
        )
    assert reached == [[number, True] for number in range(wanted)]
    state = 'return document.querySelector("button[aria-pressed]").getAttribute("aria-pressed");'
    browser.run('document.querySelector("button[aria-pressed]").focus();')
    seen = [browser.run(state)]
    for key in (" ", "Enter"):
        browser.press(key)
        seen.append(browser.run(state))
    assert seen == ["false", "true", "false"]
    browser.run('document.querySelector("summary").focus();')
    browser.press("Enter")
    browser.settle()
    assert browser.run('return document.querySelectorAll("details[open] table").length;') == 1


def test_a_reader_of_the_screen_is_told_everything(browser: Browser, page: Path) -> None:
    browser.open(page)
    told = browser.accessible()
    named = {"button", "combobox", "image", "table", "region", "main", "heading", "columnheader", "DisclosureTriangle"}
    assert [(role, name) for role, name in told if role in named - {"main"} and not name] == []
    assert {"banner", "main", "contentinfo"} <= {role for role, _ in told}
    headings = [name for role, name in told if role == "heading"]
    assert any(name.startswith("What to change") for name in headings)
    regions = [name for role, name in told if role == "region"]
    assert len(set(regions)) == len(regions)
    levels = browser.run(
        'return [...document.querySelectorAll("h1, h2, h3")].map((heading) => Number(heading.tagName[1]));'
    )
    assert levels.count(1) == 1


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
    browser.open(page)
    assert browser.run(script) == [False, True]


def test_every_step_can_be_chosen(browser: Browser, page: Path) -> None:
    script = """
        const section = document.querySelector('section[data-section="timeline"]');
        const step = section.querySelector("select");
        const seen = [[...step.options].map((option) => option.textContent), step.value];
        const drawn = () => section.querySelector("canvas").toDataURL();
        const before = drawn();
        step.value = "4";
        step.dispatchEvent(new Event("change"));
        return [...seen, before === drawn()];
    """
    browser.open(page)
    steps, typical, same = browser.run(script)
    assert steps == ["step 2", "step 3", "step 4"]
    assert typical == "2"
    assert not same


def test_every_control_does_something(browser: Browser, page: Path) -> None:
    script = """
        const [tried, idle] = [[], []];
        const attempt = (control, name, act) => {
          // What one in the head does, is seen anywhere; of the others, in their section.
          const scope = control.closest("section:not(.jobs)") ?? document.body;
          const looks = () => [
            scope.innerHTML.replace(/ aria-(pressed|current)="[^"]*"/g, ""),
            ...[...scope.querySelectorAll("canvas")].map((canvas) => canvas.toDataURL()),
          ].join();
          const where = control.closest("section")?.dataset.section ?? "head";
          const before = looks();
          act();
          tried.push(`${where}: ${name}`);
          if (looks() === before) idle.push(`${where}: ${name}`);
        };
        const all = (what) => [...document.querySelectorAll(what)];
        const press = (button) => attempt(button, button.textContent, () => button.click());
        const choose = (select) => {
          for (const option of [...select.options].filter((other) => !other.selected)) {
            attempt(select, option.textContent, () => {
              select.value = option.value;
              select.dispatchEvent(new Event("change"));
            });
          }
        };
        const zoom = all("button").find((button) => button.textContent === "zoom in");
        for (const button of all("main button").filter((other) => !other.hidden && !other.closest("th"))) {
          if (["zoom out", "whole step"].includes(button.textContent)) zoom.click();
          press(button);
        }
        for (const details of all("details")) {
          attempt(details, details.textContent, () => {
            details.open = true;
            details.dispatchEvent(new Event("toggle"));
          });
        }
        for (const head of all("th button")) press(head);
        all("main select").forEach(choose);
        all("tr:not([aria-current]) button").filter((button) => button.closest(".jobs")).forEach(press);
        all("#head select").forEach(choose);
        return [tried, idle];
    """
    browser.open(page)
    tried, idle = browser.run(script)
    assert {"timeline: step 4", "timeline: critical path only", "timeline: zoom out", "jobs: cpu_ddp"} <= set(tried)
    assert len(tried) > 60
    assert set(idle) <= {"head: light"}


def test_every_chart_tells_its_values_to_keys(browser: Browser, page: Path) -> None:
    script = """
        const tip = document.getElementById("tip");
        return [...document.querySelectorAll("canvas[tabindex]")].map((chart) => {
          tip.textContent = "";
          chart.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowRight" }));
          return [chart.getAttribute("aria-label"), tip.textContent];
        });
    """
    browser.open(page)
    told = browser.run(script)
    assert len(told) == 6
    assert all(label and text for label, text in told)


def test_kinds_of_the_path_are_called_alike(browser: Browser, page: Path) -> None:
    browser.open(page)
    said = {text for text in browser.dom().texts if text.startswith("path: ")}
    assert said
    assert said <= {f"path: {words}" for words in PATH_KINDS.values()}


def test_a_long_name_is_short_and_whole_on_hover(browser: Browser, tmp_path: Path) -> None:
    whole = (
        "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<c10::BFloat16>, "
        "std::array<char*, 3ul> >(int, at::native::CUDAFunctor_add<c10::BFloat16>, std::array<char*, 3ul>)"
    )
    corpus_of(tmp_path, [op("aten::add", 0, 90), launch(10, 5, 1), kernel(whole, 20, 30, correlation=1)])
    write(tmp_path / "corpus", tmp_path / "page.html")
    browser.open(tmp_path / "page.html")
    text, title = browser.run(
        """
        const cell = document.querySelector('[data-table="kernels.kernels"] td');
        return [cell.textContent, cell.title];
        """
    )
    assert text == "vectorized_elementwise_kernel<CUDAFunctor_add<BFloat16>>"
    assert title == whole


WRAPPED = f"""
    {UNFOLD}
    const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    const broken = [];
    while (texts.nextNode()) {{
      const {{ parentElement, data }} = texts.currentNode;
      if (parentElement.closest("script, style, noscript, option")) continue;
      for (const word of data.matchAll(/\\S+/g)) {{
        const range = document.createRange();
        range.setStart(texts.currentNode, word.index);
        range.setEnd(texts.currentNode, word.index + word[0].length);
        const lines = new Set([...range.getClientRects()].map((box) => box.top));
        if (lines.size > 1 && !word[0].includes("-")) broken.push(word[0]);
      }}
    }}
    const lefts = new Set([...document.querySelectorAll("main section")].map((section) => section.offsetLeft));
    return [innerWidth, document.documentElement.scrollWidth, broken, lefts.size];
"""


@pytest.mark.parametrize("width", [1280, 420])
def test_nothing_wraps_inside_words(browser: Browser, page: Path, width: int) -> None:
    browser.open(page, width=width)
    inner, needed, broken, columns = browser.run(WRAPPED)
    assert columns == (2 if width > 860 else 1)
    assert inner == width
    assert needed <= width
    assert broken == []


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[int]]:
    """The page of a sweep, and the steps of its plans, ns."""
    grid = Grid.of_gpus(["llama-3-8b"], ["h100-sxm"], 8, 64)
    plans = Search(grid, top=len(grid)).run().best
    file = tmp_path_factory.mktemp("sweep") / "sweep.html"
    write_sweep(plans.to_arrow(), file, "some plans")
    return file, [round(1e9 * step) for step in plans["iteration_time_s"].to_list()]


def test_a_sweep_is_drawn(browser: Browser, sweep: tuple[Path, list[int]]) -> None:
    page, expected = sweep
    browser.open(page)
    dom = browser.dom()
    steps = [int(row["step_ns"]) for row in dom.tables["plans.plans"]]
    assert steps == expected[: len(steps)]
    assert len(dom.tables["plans.front"]) > 1
    assert "some plans" in dom.texts
    assert any("is the fastest that fits" in text for text in dom.texts)


@pytest.mark.parametrize("width", [1280, 420])
def test_a_sweep_has_room_and_works(browser: Browser, sweep: tuple[Path, list[int]], width: int) -> None:
    page, _ = sweep
    browser.open(page, width=width)
    _, needed, broken, _ = browser.run(WRAPPED)
    assert needed <= width
    assert broken == []
    rows = 'return document.querySelectorAll(`[data-table="plans.plans"] tbody tr`).length;'
    before = browser.run(rows)
    browser.run(
        """
        const buttons = [...document.querySelectorAll("main button")].filter((other) => !other.closest("th"));
        buttons.filter((button) => !button.hidden).forEach((button) => button.click());
        """
    )
    assert browser.run(rows) > before


def test_names_of_a_trace_are_text(browser: Browser, tmp_path: Path) -> None:
    nasty = '<img src=x onerror="document.title=1"><script>document.title=2</script>'
    corpus_of(tmp_path, [op(nasty, 0, 90), launch(10, 5, 1), kernel(nasty, 20, 30, correlation=1)])
    write(tmp_path / "corpus", tmp_path / "page.html")
    browser.open(tmp_path / "page.html", numbers=True)
    dom = browser.dom()
    assert dom.count("img") == 0
    assert dom.count("script") == 2
    assert any(row["name"] == nasty for row in dom.tables["kernels.kernels"])
    assert any(text.startswith("lumos-df: ") for text in dom.texts)


def test_whatever_lacks_it_draws(browser: Browser, tmp_path: Path) -> None:
    corpus_of(tmp_path, [op("aten::mm", 0, 90)])
    write(tmp_path / "corpus", tmp_path / "page.html")
    browser.open(tmp_path / "page.html", numbers=True)
    dom = browser.dom()
    assert "No kernel in these traces" in dom.texts
    assert dom.count("canvas") == 2 * 2


def test_a_script_that_complains_is_noticed(browser: Browser, page: Path) -> None:
    """The others are worth something: they fail when a page says a word on the console or throws."""
    for script in ('console.warn("so");', 'setTimeout(() => { throw new Error("so"); }); '):
        browser.open(page)
        with pytest.raises(AssertionError):
            browser.run(f"{script} return new Promise((kept) => setTimeout(kept, 50));")
