// The page: its head, one job at a time, themes.

const DATA = JSON.parse(document.getElementById("data").textContent);

/** How far the replay is off: how far what rests on it can be trusted. */
const TRUSTED_PCT = 5;
const accuracy = ({ mean_pct: [mean], worst_pct: [worst], host_share_pct: [host], ranks: [ranks] }) =>
  el("span", { class: mean > TRUSTED_PCT ? "badge careful" : "badge", data: { accuracy: String(mean) } },
    `${mean > TRUSTED_PCT ? "careful: " : ""}replay within ${asExactPercent(Math.max(mean, 0.01))} (worst ${asExactPercent(Math.max(worst, 0.01))}), ${host.toFixed(0)}% of the path is host work${ranks > 1 ? ", also of ranks waited for" : ""}`);

const about = ({ job, traces, operators, gpu_rows: rows, device_name: device }) =>
  [`job ${job}`, `${asCount(traces)} ${traces === 1 ? "trace" : "traces"}`, `${asCount(operators)} operators`, `${asCount(rows)} GPU rows`, device].filter(Boolean).join("  ·  ");

function show(job) {
  const main = document.getElementById("main");
  const cards = [];
  if (job) {
    for (const [name, kind, wide] of SECTIONS.filter(([part]) => job.sections[part])) cards.push(section(name, kind, wide, job.sections[name], job.traces.label, job));
    if (job.warnings) {
      cards.push([el("section", { "aria-labelledby": "h-warnings", data: { section: "warnings" } }, el("h2", { id: "h-warnings" }, el("span", { class: "kind" }, "Warnings"), "What a reader should know about these traces"),
        el("ul", { class: "plain" }, ...job.warnings.warning.map((text_, row) => el("li", {}, `${text_} (${job.warnings.traces[row]} ${job.warnings.traces[row] === 1 ? "trace" : "traces"})`)))), () => {}]);
    }
  }
  if (DATA.plans) cards.unshift(section("plans", "Estimated plans", true, job ? DATA.plans : { ...DATA.plans, title: "Step against memory, and the front of both" }, [], job));
  // What has nothing to show goes to the end; the others fill two columns evenly.
  cards.sort((a, b) => a[0].classList.contains("absent") - b[0].classList.contains("absent"));
  const [left, right] = [el("div", { class: "column" }), el("div", { class: "column" })];
  main.replaceChildren(...cards.map(([card]) => card).filter((card) => card.classList.contains("wide")), left, right);
  for (const [card, draw] of cards) {
    if (!card.classList.contains("wide")) (right.offsetHeight < left.offsetHeight ? right : left).append(card);
    draw();
  }
  if (location.hash === "#numbers") main.querySelectorAll("details").forEach((folded) => { folded.open = true; });
}

function theme(name) {
  const dark = name === "dark" || (name === "auto" && matchMedia("(prefers-color-scheme: dark)").matches);
  document.documentElement.classList.toggle("dark", dark);
  document.dispatchEvent(new Event("theme"));
}

function head() {
  const top = el("div");
  const sideBySide = el("div");
  let mark = () => {};
  const fill = (chosen) => {
    const job = DATA.jobs[chosen];
    top.replaceChildren(...(job ? [el("h1", {}, job.headline), el("p", { class: "lead" }, about(job.summary), " ", job.accuracy && accuracy(job.accuracy)), ...job.limits.map((limit) => el("p", { class: "limit" }, limit))]
      : [el("h1", {}, DATA.verdict), el("p", { class: "lead" }, ...prose(DATA.lead))]));
    mark(chosen);
    show(job);
  };
  let mode = "auto";
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => theme(mode));
  const bar = el("div", { class: "bar" }, el("span", { class: "brand" }, `lumos-df  ·  ${DATA.corpus}`), el("span", { class: "grow" }));
  if (DATA.jobs.length > 1) {
    const jobs = choice("Job", DATA.jobs.map((job, place) => [place, job.summary.job]), 0, (value) => fill(Number(value)));
    bar.append(jobs);
    mark = jobsTable(sideBySide, (place) => { jobs.querySelector("select").value = place; fill(place); });
  }
  bar.append(choice("Theme", [["auto", "as the system"], ["light", "light"], ["dark", "dark"]], "auto", (value) => { mode = value; theme(mode); }));
  document.getElementById("head").append(bar, sideBySide, top);
  theme(mode);
  fill(0);
}

document.getElementById("foot").append(el("p", {}, ...prose(DATA.foot)));
head();
