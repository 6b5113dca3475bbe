// The jobs of a corpus side by side: how long a step is, where it goes, what to change first.

/** Parts of the mean step as columns of the summary: [column, name, colour]; one alone where a wait is unknown. */
const sharesOf = (summary) => [["exposed_compute_pct", ...PARTS[0]], ["overlapped_pct", ...PARTS[1]], ...(summary.exposed_waiting_pct === null ? [["exposed_communication_pct", ...PARTS[2]]]
  : [["exposed_transfer_pct", "transfer, exposed", "--exposed"], ["exposed_waiting_pct", "waiting for other ranks", "--wait"]]), ["other_pct", ...PARTS[3]]];

/** A bar of the parts, as long as the step is, in words for who cannot see it. */
function shareBar(summary) {
  if (!summary.gpu_rows || summary.mean_step_ns === null) return "nothing on a GPU";
  const parts = sharesOf(summary).filter(([key]) => summary[key] > 0);
  const words = parts.map(([key, name]) => `${name} ${asPercent(summary[key])}`).join(", ");
  return el("div", { class: "sharebar", role: "img", "aria-label": words, title: words },
    ...parts.map(([key, , colour]) => el("i", { style: { width: `${summary[key]}%`, background: `var(${colour})` } })));
}

function firstAdvice(job) {
  const rows = job && job.sections.advice.data.advice;
  if (!rows || !rows.worthwhile[0]) return ["–"];
  return [el("b", { class: "gain" }, signed(asTime, -rows.gain_ns[0])), ` (${signed(asShare, -rows.gain_pct[0])}) `, ...breakable(rows.plain[0])];
}

/** A row a job; a click on its name calls `choose` with its place among the jobs shown in full. Returns a function that marks one. */
function jobsTable(host, choose) {
  const longest = Math.max(...DATA.summaries.map((summary) => summary.mean_step_ns || 0), 1);
  const places = new Map(DATA.jobs.map((job, place) => [job.summary.job, place]));
  const heads = [["job", "job", ""], ["ranks", "ranks", "n"], ["steps", "steps", "n"], ["mean_step_ns", "mean step", "n"], ["exposed_waiting_pct", "waiting", "n"], ["parts", "where the step goes", ""], ["advice", "what to change first", ""]];
  const raw = (summary, key) => ({ data: { v: String(summary[key] ?? "") } });
  const rows = DATA.summaries.map((summary) => {
    const place = places.get(summary.job);
    const name = place === undefined ? el("div", {}, ...breakable(summary.job)) : el("button", { type: "button", onclick: () => choose(place) }, ...breakable(summary.job));
    const fill = el("span", { class: "fill", style: { width: `${Math.max(1, (60 * (summary.mean_step_ns || 0)) / longest)}px` } });
    return el("tr", {},
      el("td", { class: "name", ...raw(summary, "job") }, name), el("td", { class: "n", ...raw(summary, "ranks") }, asCount(summary.ranks)),
      el("td", { class: "n", ...raw(summary, "steps") }, asCount(summary.steps)), el("td", { class: "n", ...raw(summary, "mean_step_ns") }, fill, asTime(summary.mean_step_ns)),
      el("td", { class: "n", ...raw(summary, "exposed_waiting_pct") }, asPercent(summary.exposed_waiting_pct)),
      el("td", { class: "parts", data: { v: "" } }, shareBar(summary)), el("td", { class: "first", data: { v: "" } }, ...firstAdvice(DATA.jobs[place])));
  });
  const all = [...new Map(DATA.summaries.filter((summary) => summary.gpu_rows).flatMap(sharesOf).map(([, name, colour]) => [name, colour]))];
  host.append(el("section", { class: "jobs", "aria-labelledby": "h-jobs", data: { section: "jobs" } },
    el("h2", { id: "h-jobs" }, el("span", { class: "kind" }, "Jobs"), `${DATA.summaries.length} jobs side by side`), legend(all),
    el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Jobs side by side" }, el("table", { "aria-labelledby": "h-jobs", data: { table: "jobs.jobs" } },
      el("thead", {}, el("tr", {}, ...heads.map(([key, label, kind]) => el("th", { scope: "col", class: kind || undefined, data: { column: key } }, label)))), el("tbody", {}, ...rows)))));
  return (place) => rows.forEach((row, number) => {
    if (DATA.summaries[number].job === DATA.jobs[place].summary.job) row.setAttribute("aria-current", "true");
    else row.removeAttribute("aria-current");
  });
}
