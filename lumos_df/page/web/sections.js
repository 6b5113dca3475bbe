// Which charts and tables each section has.

const PARTS = [
  ["compute", "--compute", "exposed_compute_ns"], ["compute and communication", "--overlap", "overlapped_ns"],
  ["exposed communication", "--exposed", "exposed_communication_ns"], ["no kernel", "--other", "other_ns"],
];
const FEW = 64;

/** Parts of the exposed communication; one alone where a wait is unknown. */
const exposedParts = (steps) => (steps.exposed_waiting_ns.includes(null) ? [PARTS[2]]
  : [["transfer, exposed", "--exposed", "exposed_transfer_ns"], ["waiting for other ranks", "--wait", "exposed_waiting_ns"]]);

const time = (key, label, extra = {}) => ({ key, label, write: asTime, ...extra });
const count = (key, label) => ({ key, label, write: asCount });
const text = (key, label) => ({ key, label, write: asText });
/** The name of an operator, of which only what tells it apart is shown. */
const kernelName = (key, label) => ({ key, label, write: asText, shown: "plain" });
const share = (key, label, extra = {}) => ({ key, label, write: asPercent, ...extra });
/** Names of element types as tables have room for them. */
const TYPES = { bfloat16: "bf16", float16: "fp16", float32: "fp32", float64: "fp64", float8_e4m3fn: "fp8 e4m3", float8_e5m2: "fp8 e5m2" };

/** Rows of a table with the ranks' labels beside their numbers. */
const withRanks = (rows, labels) => ({ ...rows, rank: rows.place.map((place) => labels[place]) });

/** A chart that is drawn anew for each choice; returns a function that sets the choices. */
function drawnAnew(host, draw) {
  const box = el("div");
  host.append(box);
  const again = () => { box.replaceChildren(); draw(box); };
  again();
  return again;
}

/** Columns of `parts`, a rank and step: all if they are few, else those of one step; sorted as asked. */
function stepColumns(host, steps, labels, parts, name, known = false) {
  const numbers = [...new Set(steps.step)];
  const few = steps.step.length <= FEW;
  const state = { step: few && numbers.length > 1 ? "all" : String(numbers[numbers.length - 1]), sort: "rank" };
  const controls = el("div", { class: "controls" });
  host.append(controls);
  if (!known) host.append(legend(parts.filter((part) => steps[part[2]].some((value) => value > 0))));
  const total = (row) => parts.reduce((sum, part) => sum + steps[part[2]][row], 0);
  const again = drawnAnew(host, (box) => {
    let rows = steps.place.map((_, row) => row).filter((row) => state.step === "all" || String(steps.step[row]) === state.step);
    const sorts = { rank: () => 0, total: (a, b) => total(b) - total(a), communication: (a, b) => steps.exposed_communication_ns[b] - steps.exposed_communication_ns[a] };
    rows = state.step === "all" ? rows : [...rows].sort(sorts[state.sort]);
    stackedColumns(box, {
      label: name,
      axis: `rank${state.sort === "rank" ? "" : ", longest first"}`,
      parts,
      write: asTime,
      items: rows.map((row) => ({
        label: labels[steps.place[row]],
        group: state.step === "all" ? asStep(steps.step[row]) : "",
        values: parts.map((part) => steps[part[2]][row]),
        tip: () => ({
          title: `rank ${labels[steps.place[row]]}, ${asStep(steps.step[row])}`,
          rows: [["step", asTime(steps.step_ns[row])], ...parts.map(([part, colour, key]) =>
            [part, `${asTime(steps[key][row])}  ${asPercent(steps.step_ns[row] ? (100 * steps[key][row]) / steps.step_ns[row] : 0)}`, colour])],
        }),
      })),
    });
    if (state.step !== "all") spread(box, name, rows.map(total), rows.map((row) => labels[steps.place[row]]), asTime);
  });
  if (numbers.length > 1) {
    controls.append(choice("Show", [...(few ? [["all", "every step"]] : []), ...numbers.map((step) => [String(step), asStep(step)])], state.step,
      (value) => { state.step = value; again(); }));
  }
  if (labels.length > 1) {
    controls.append(choice("Order", [["rank", "by rank"], ["total", "longest first"], ["communication", "most exposed first"]], "rank",
      (value) => { state.sort = value; if (state.step === "all" && value !== "rank") { state.step = String(numbers[numbers.length - 1]); controls.querySelector("select").value = state.step; } again(); }));
  }
  if (!controls.childElementCount) controls.remove();
}

/** Where the mean step goes: the shares of the summary, as the legend of the chart below. */
const shares = ({ summary }) => el("div", { class: "legend shares" }, ...sharesOf(summary).filter(([key]) => summary[key] > 0).map(([key, name, colour]) => el("span", {},
  el("i", { style: { background: `var(${colour})` } }), `${name} `, el("b", { data: { share: key, v: String(summary[key] ?? "") } }, asPercent(summary[key])))));

const DRAW = {
  advice: (host, { advice }) => adviceList(host, advice),

  breakdown(host, { steps }, labels, job) {
    if (job.summary.gpu_rows) host.append(shares(job));
    stepColumns(host, steps, labels, [...PARTS.slice(0, 2), ...exposedParts(steps), PARTS[3]], "Step", job.summary.gpu_rows > 0);
    numbers(host, {
      name: "breakdown.steps", caption: "Breakdown of each rank and step", rows: withRanks(steps, labels),
      columns: [text("rank", "rank"), count("step", "step"), time("step_ns", "step"), ...PARTS.map(([label, , key]) => time(key, label)),
        time("exposed_waiting_ns", "exposed waiting"), time("exposed_transfer_ns", "exposed transfer"), time("memory_ns", "of it copies"), time("idle_ns", "of it idle")],
    });
  },

  timeline(host, data, labels) {
    const { ranks } = data;
    const steps = [...new Set(ranks.step)];
    const state = { step: ranks.step[ranks.typical.indexOf(true)], rank: null, highlight: false, window: null };
    let view = null;
    const controls = el("div", { class: "controls" });
    const kinds = data.path ? [...new Set(data.path.kind.map((kind) => data.path.names[kind]))] : [];
    host.append(controls, legend([["compute", "--compute"], ["communication", "--exposed"], ["copies", "--memory"], ["host operators", "--host"],
      ...(data.path ? [["underlined: on the critical path", "--text"]] : []), ...kinds.filter((kind) => !["kernel", "transfer", "memory", "host"].includes(kind)).map((kind) => [`path: ${data.kinds[kind]}`, KIND_COLOURS[kind]])]));
    const again = drawnAnew(host, (box) => { view = timeline(box, data, labels, state); });
    if (steps.length > 1) {
      controls.append(choice("Step", steps.map((step) => [step, asStep(step)]), state.step, (value) => { Object.assign(state, { step: Number(value), window: null }); again(); }));
    }
    const places = [...new Set(ranks.place)].sort((a, b) => a - b);
    if (places.length > 1) {
      controls.append(choice("Ranks", [["", "all drawn"], ...places.map((place) => [place, `rank ${labels[place]}`])], "",
        (value) => { state.rank = value === "" ? null : Number(value); again(); }));
    }
    if (data.path) controls.append(toggle("critical path only", state.highlight, (on) => { state.highlight = on; again(); }));
    controls.append(
      el("button", { type: "button", onclick: () => view.zoom(0.5) }, "zoom in"), el("button", { type: "button", onclick: () => view.zoom(2) }, "zoom out"),
      el("button", { type: "button", onclick: () => view.reset() }, "whole step"), el("span", {}, "drag to move, Ctrl and wheel or double-click to zoom"));
    numbers(host, {
      name: "timeline.ranks", caption: "Steps that are drawn", rows: withRanks(ranks, labels),
      columns: [text("rank", "rank"), count("step", "step"), time("start_ns", "starts at"), time("step_ns", "step")],
    });
  },

  path(host, { kinds, pieces, gains, replays }, labels) {
    if (kinds) {
      const [left, right] = [el("div"), el("div")];
      host.append(el("div", { class: "halves" }, left, right));
      table(left, {
        name: "path.kinds", caption: "What the path is made of", rows: kinds,
        columns: [{ ...text("kind", "kind"), shown: "said" }, share("share_pct", "of the path", { bar: true }), time("mean_ns", "a step"), count("pieces", "pieces")],
      });
      if (gains) {
        const both = new Set(gains.what).size > 1;
        table(right, {
          name: "path.gains", caption: "How much shorter the step is without an operator or a family of them, and in half its time", rows: { ...gains, is: gains.what.map((what) => (what === "name" ? "operator" : what)) }, limit: 8,
          columns: [kernelName("value", "operator"), ...(both ? [{ ...text("what", "is a"), shown: "is", minor: true }] : []), share("gain_pct", "of the step", { bar: true }), time("mean_gain_ns", "gain"), time("mean_half_gain_ns", "at half"), time("mean_ns", "takes")],
        });
      }
      numbers(host, {
        name: "path.pieces", caption: "The critical path, summed by what it is made of", rows: pieces,
        columns: [text("kind", "kind"), kernelName("what", "what"), count("pieces", "pieces"), time("mean_ns", "a step"), share("share_pct", "share")],
      }, "Pieces of the path");
    }
    if (replays) {
      numbers(host, {
        name: "path.replays", caption: "Recorded and replayed steps", rows: withRanks(replays, labels),
        columns: [text("rank", "rank"), count("step", "step"), time("recorded_ns", "recorded"), time("replayed_ns", "replayed"), { key: "error_pct", label: "error", write: asExactPercent }, time("unexplained_ns", "unexplained"),
          time("start_error_p50_ns", "start error, median"), time("start_error_p99_ns", "start error, p99")],
      }, "Recorded and replayed steps");
    }
  },

  busy(host, { busy }, labels) {
    const step = busy.width_ns[0];
    const until = step * Math.max(...busy.busy_pct.map((row) => row.length));
    heat(host, {
      label: "Share of time with a kernel, rank against time", rows: busy.place.map((place) => labels[place]), values: busy.busy_pct, most: 100, ramp: "ramp",
      write: asPercent, rowName: "rank", columnName: "time", ends: [0, until, asTime],
      tip: (row, at) => ({ title: `rank ${labels[busy.place[row]]} at ${asTime(at * step)}`, rows: [["a kernel runs", asPercent(busy.busy_pct[row][at] ?? null)], ["mean of the rank", asPercent(busy.mean_pct[row])]] }),
    });
    host.append(rampLegend("0%", "100% of the time a kernel runs", "ramp"));
    spread(host, "Mean", busy.mean_pct, busy.place.map((place) => labels[place]), asPercent);
    numbers(host, {
      name: "busy.busy", caption: "Mean share of time with a kernel", rows: withRanks(busy, labels), columns: [text("rank", "rank"), share("mean_pct", "a kernel runs", { bar: true })],
    });
  },

  kernels(host, { kernels, families }) {
    const state = { family: "" };
    const controls = el("div", { class: "controls" });
    host.append(controls);
    const again = drawnAnew(host, (box) => {
      const rows = kernels.name.map((_, row) => row).filter((row) => !state.family || kernels.family[row] === state.family);
      if (!rows.length) return box.append(el("p", { class: "note" }, "None of this family is among the longest."));
      table(box, {
        name: "kernels.kernels", caption: "Kernels, memcpys and memsets", limit: 10,
        rows: Object.fromEntries(Object.entries(kernels).map(([key, values]) => [key, rows.map((row) => values[row])])),
        columns: [kernelName("name", "kernel"), { ...text("family", "family"), minor: true }, share("gpu_pct", "GPU time", { bar: true }), time("total_ns", "total"), count("calls", "calls"), time("mean_ns", "mean"), time("max_ns", "longest")],
      });
    });
    controls.append(choice("Family", [["", "all"], ...families.family.map((family, row) => [family, `${family} (${asPercent(families.gpu_pct[row])})`])], "",
      (value) => { state.family = value; again(); }));
    numbers(host, {
      name: "kernels.families", caption: "GPU time by family", rows: families,
      columns: [text("family", "family"), share("gpu_pct", "GPU time", { bar: true }), time("total_ns", "total"), count("calls", "calls")],
    }, "By family");
  },

  collectives(host, { collectives: rows }) {
    const drawn = rows.collective.map((_, row) => row).filter((row) => rows.busbw_gbps[row] > 0 && rows.size_bytes[row] > 0);
    const kinds = [...new Set(rows.collective)];
    const colour = (row) => MARKS[kinds.indexOf(rows.collective[row]) % MARKS.length];
    const most = Math.max(...rows.total_ns, 1);
    if (drawn.length) {
      host.append(legend(kinds.map((kind, number) => [kind, MARKS[number % MARKS.length]])));
      scatter(host, {
        label: "Bus bandwidth against message size", writeX: asBytes, writeY: asBandwidth, nameX: "message size", nameY: "busbw; larger points took more time",
        points: drawn.map((row) => ({
          x: rows.size_bytes[row], y: rows.busbw_gbps[row], low: rows.min_busbw_gbps[row], high: rows.max_busbw_gbps[row],
          size: 4 + 8 * Math.sqrt(rows.total_ns[row] / most), colour: colour(row),
          tip: () => ({
            title: `${rows.collective[row]}, ${asText(rows.dtype[row])}, ${asCount(rows.group_size[row])} ranks`,
            rows: [["message", asBytes(rows.size_bytes[row])], ["busbw, median of ranks", asBandwidth(rows.busbw_gbps[row])], ["from rank to rank", `${asBandwidth(rows.min_busbw_gbps[row])} to ${asBandwidth(rows.max_busbw_gbps[row])}`],
              ["calls", asCount(rows.calls[row])], ["mean", asTime(rows.mean_ns[row])], ["total", asTime(rows.total_ns[row])], ["of it waiting", asTime(rows.waiting_ns[row])]],
          }),
        })),
      });
    }
    table(host, {
      name: "collectives.collectives", caption: "Collectives by kind, ranks, type and size", rows: { ...rows, type: rows.dtype.map((name) => TYPES[name] ?? name) }, limit: 8,
      columns: [text("collective", "collective"), count("group_size", "ranks"), { ...text("dtype", "type"), shown: "type" }, { key: "size_bytes", label: "message", write: asBytes }, count("calls", "calls"), time("total_ns", "total"), time("waiting_ns", "waiting"),
        { key: "busbw_gbps", label: "GB/s", write: asNumber }],
    });
  },

  stragglers(host, { stragglers: rows }) {
    const ranks = [...new Set(rows.rank)].sort((a, b) => a - b);
    const steps = [...new Set(rows.step)];
    const measures = { made_others_wait_ns: ["made others wait", asTime], waiting_ns: ["waited itself", asTime], times_last: ["times last", asCount] };
    const state = { measure: "made_others_wait_ns", sort: "rank" };
    const where = new Map(rows.rank.map((rank, row) => [`${rank}/${rows.step[row]}`, row]));
    const placed = (step) => (step === null ? "outside every step" : asStep(step));
    const told = (row) => ({
      title: `rank ${rows.rank[row]}, ${placed(rows.step[row])}`,
      rows: [["made others wait", asTime(rows.made_others_wait_ns[row])], ["waited itself", asTime(rows.waiting_ns[row])], ["last to arrive", `${rows.times_last[row]} of ${rows.collectives[row]}`]],
    });
    const controls = el("div", { class: "controls" });
    host.append(controls);
    const again = drawnAnew(host, (box) => {
      const [name, write] = measures[state.measure];
      const values = rows[state.measure];
      const sum = new Map(ranks.map((rank) => [rank, 0]));
      rows.rank.forEach((rank, row) => sum.set(rank, sum.get(rank) + values[row]));
      const order = state.sort === "rank" ? ranks : [...ranks].sort((a, b) => sum.get(b) - sum.get(a));
      const most = Math.max(...values, 0);
      // One step has no second axis.
      if (steps.length === 1) {
        stackedColumns(box, {
          label: `${name}, by rank`, axis: state.sort === "rank" ? "rank" : "rank, most first", parts: [[name, "--late-mid"]], write, height: 200,
          items: order.map((rank) => {
            const row = where.get(`${rank}/${steps[0]}`);
            return { label: String(rank), group: "", values: [values[row]], tip: () => told(row) };
          }),
        });
        spread(box, name, ranks.map((rank) => sum.get(rank)), ranks.map(String), write);
        return;
      }
      heat(box, {
        label: `${name}, rank against step`, rows: order.map(String), columns: steps.map((step) => (step === null ? "outside" : String(step))),
        values: order.map((rank) => steps.map((step) => { const row = where.get(`${rank}/${step}`); return row === undefined ? null : values[row]; })),
        most, ramp: "late", write, rowName: "rank", columnName: "step", cells: true,
        tip: (y, x) => {
          const row = where.get(`${order[y]}/${steps[x]}`);
          return row === undefined ? { title: `rank ${order[y]}, ${placed(steps[x])}`, rows: [["collectives", "none matched"]] } : told(row);
        },
      });
      box.append(rampLegend("0", `${write(most)}: ${name}`, "late"));
      spread(box, name, ranks.map((rank) => sum.get(rank)), ranks.map(String), write);
    });
    controls.append(choice("Show", Object.entries(measures).map(([key, [name]]) => [key, name]), state.measure, (value) => { state.measure = value; again(); }),
      choice("Order", [["rank", "by rank"], ["most", "most first"]], "rank", (value) => { state.sort = value; again(); }));
    numbers(host, {
      name: "stragglers.stragglers", caption: "Who waited for whom, a rank and step", rows,
      columns: [count("rank", "rank"), count("step", "step"), count("collectives", "collectives"), count("times_last", "times last"), time("waiting_ns", "waited"), time("made_others_wait_ns", "made others wait")],
    });
  },

  memory(host, { memory: rows }, labels) {
    const drawn = rows.place.map((_, row) => row).filter((row) => rows.ts_ns[row] && rows.ts_ns[row].length);
    const lines = drawn.map((row, number) => ({
      name: `rank ${labels[rows.place[row]]}`, x: rows.ts_ns[row], y: rows.allocated_bytes[row], end: rows.ts_ns[row][rows.ts_ns[row].length - 1],
      colour: MARKS[number % MARKS.length], opacity: drawn.length > 8 ? 0.5 : 0.85,
    }));
    const until = Math.max(...lines.map((line) => line.end), 1);
    if (lines.length <= 8) host.append(legend(lines.map((line) => [line.name, line.colour])));
    overTime(host, {
      label: "Memory allocated over time", lines, until, most: Math.max(...rows.peak_bytes, 1) * 1.04, writeX: asTime, writeY: asBytes,
      tip: (moment) => ({ title: `at ${asTime(moment)}`, rows: lines.map((line) => [line.name, valueAt(line, moment), line.colour]).filter((row) => row[1] !== null)
        .sort((a, b) => b[1] - a[1]).slice(0, 10).map(([name, value, colour]) => [name, asBytes(value), colour]) }),
    });
    spread(host, "Peak", rows.peak_bytes, rows.place.map((place) => labels[place]), asBytes);
    numbers(host, {
      name: "memory.memory", caption: "Peaks of the allocator", rows: withRanks(rows, labels),
      columns: [text("rank", "rank"), text("device_type", "device"), count("device", "number"), { key: "peak_bytes", label: "peak allocated", write: asBytes, bar: true }, { key: "reserved_bytes", label: "peak reserved", write: asBytes }],
    });
  },

  held(host, { categories, stacks, pools }, labels) {
    const bytes = (key, label, extra = {}) => ({ key, label, write: asBytes, ...extra });
    if (categories) {
      table(host, {
        name: "held.categories", caption: "Held at the peak, by what it is for", rows: withRanks(categories, labels),
        columns: [text("rank", "rank"), count("device", "device"), text("category", "category"), share("share_pct", "of the peak", { bar: true }), bytes("bytes", "bytes"), count("blocks", "blocks")],
      });
      table(host, {
        name: "held.stacks", caption: "Held at the peak, by where it was allocated", rows: withRanks(stacks, labels), limit: 12,
        columns: [text("stack", "allocated in"), text("category", "category"), share("share_pct", "of the peak", { bar: true }), bytes("bytes", "bytes"), count("blocks", "blocks"), text("rank", "rank")],
      });
    }
    if (pools) {
      numbers(host, {
        name: "held.pools", caption: "Segments of the allocator when the snapshot was taken", rows: withRanks(pools, labels),
        columns: [text("rank", "rank"), count("device", "device"), text("pool", "pool"), count("stream", "stream"), count("segments", "segments"), bytes("reserved_bytes", "reserved"), bytes("allocated_bytes", "held"),
          bytes("empty_bytes", "can go back"), bytes("stuck_bytes", "stuck"), share("stuck_pct", "of reserved")],
      });
    }
  },

  plans(host, { plans: rows, fields, front, limits }) {
    const sizes = [...new Set(rows.gpus)].sort((a, b) => a - b);
    const state = { gpus: "" };
    const numbered = new Map(front.row?.map((row, number) => [row, number]));
    const controls = el("div", { class: "controls" });
    host.append(controls, legend([[front.row ? "on the Pareto front, numbered as below" : "on the Pareto front", "--exposed"], ["fits", "--compute"], ...(rows.fits.includes(false) ? [["does not fit", "--other"]] : [])]));
    const again = drawnAnew(host, (box) => {
      const drawn = rows.plan.map((_, row) => row).filter((row) => !state.gpus || String(rows.gpus[row]) === state.gpus);
      const onFront = drawn.map((row, number) => [row, number]).filter(([row]) => rows.on_front[row]).sort((a, b) => rows.memory_bytes[a[0]] - rows.memory_bytes[b[0]]);
      scatter(box, {
        label: "Step against memory of each plan", writeX: asGigabytes, writeY: asTime, nameX: "memory of the fullest GPU", nameY: "step, with its interval", height: 400,
        // A front over several models or numbers of GPUs is no line.
        joined: new Set(drawn.map((row) => `${rows.model[row]}/${rows.gpus[row]}`)).size === 1 ? onFront.map(([, number]) => number) : [],
        limits: limits.hardware.map((name, kind) => [limits.bytes[kind], `${name} has ${asGigabytes(limits.bytes[kind])}`]),
        points: drawn.map((row) => {
          const number = numbered.get(row);
          const named = number === undefined ? { size: rows.on_front[row] ? 6 : 3.5 } : { size: 8, number: String(number + 1), name: front.label[number] };
          return {
            x: rows.memory_bytes[row], y: rows.step_ns[row], low: rows.low_ns[row], high: rows.high_ns[row], colour: rows.on_front[row] ? "--exposed" : rows.fits[row] ? "--compute" : "--other", ...named,
            tip: () => ({ title: rows.plan[row], rows: [["model, GPU", `${asText(rows.model[row])}, ${asCount(rows.gpus[row])} x ${asText(rows.hardware[row])}`], ["step", asTime(rows.step_ns[row])],
              ["interval", `${asTime(rows.low_ns[row])} to ${asTime(rows.high_ns[row])}`], ["memory", asGigabytes(rows.memory_bytes[row])], ["left on the GPU", rows.memory_margin_bytes[row] < 0 ? "does not fit" : asGigabytes(rows.memory_margin_bytes[row])]] }),
          };
        }),
      });
    });
    if (sizes.length > 1) controls.append(choice("Show", [["", "any number of GPUs"], ...sizes.map((gpus) => [gpus, `${asCount(gpus)} GPUs`])], "", (value) => { state.gpus = value; again(); }));
    else controls.remove();
    const memory = { key: "memory_bytes", label: "memory", write: asGigabytes };
    if (front.row && front.row.length > 1) {
      const change = (write) => (value) => (value === null ? "–" : signed(write, value));
      const picked = Object.fromEntries(["plan", "step_ns", "memory_bytes"].map((key) => [key, front.row.map((row) => rows[key][row])]));
      table(host, {
        name: "plans.front", caption: "What changes along the front, from the fastest plan to the leanest", limit: 12, rows: { ...front, ...picked, number: front.row.map((_, number) => number + 1) },
        columns: [count("number", "#"), { ...text("plan", "plan"), shown: "label" }, text("changes", "changes"), time("step_ns", "step"), { key: "step_change_ns", label: "change", write: change(asTime) }, memory,
          { key: "memory_change_bytes", label: "change", write: change(asGigabytes) }],
      });
    }
    const yes = (value) => (value ? "yes" : "no");
    const degrees = fields.key.map((key, place) => ({ key, label: fields.label[place], write: typeof rows[key][0] === "number" ? asCount : asText }));
    const said = Object.fromEntries(fields.key.filter((key) => typeof rows[key][0] === "boolean").map((key) => [key, rows[key].map((on) => (on ? "on" : "off"))]));
    table(host, {
      name: "plans.plans", caption: ["Plans, the fastest that fit first", fields.alike].filter(Boolean).join("; all with "), limit: 12,
      rows: { ...rows, ...said, place: rows.plan.map((_, row) => row + 1), fits: rows.fits.map(yes), on_front: rows.on_front.map(yes) },
      columns: [{ ...count("place", "#"), hover: "plan" }, ...degrees, time("step_ns", "step"), { key: "high_ns", label: "interval", write: asTime, range: ["low_ns", "step_ns", "high_ns"] },
        share("mfu_pct", "MFU"), memory, ...(rows.fits.includes(false) ? [text("fits", "fits")] : []), text("on_front", "on the front")],
    });
  },
};

/** Order on the page, the name above the finding, and whether a section takes both columns. */
const SECTIONS = [
  ["advice", "What to change", true], ["breakdown", "Where the step goes", true], ["timeline", "Timeline", true],
  ["path", "Critical path and gains", true], ["kernels", "Top kernels", true], ["stragglers", "Who is waited for", false],
  ["collectives", "Collectives", false], ["busy", "A kernel runs", false], ["memory", "Memory", false], ["held", "Held memory", true],
];

function section(name, kind, wide, found, labels, job) {
  const there = Object.keys(found.data).length > 0;
  const card = el("section", { class: [wide && there && "wide", !there && "absent"].filter(Boolean).join(" ") || undefined, "aria-labelledby": `h-${name}`, data: { section: name } },
    el("h2", { id: `h-${name}` }, el("span", { class: "kind" }, kind), found.title), found.note ? el("p", { class: "note" }, ...prose(found.note)) : null);
  return [card, () => there && DRAW[name](card, found.data, labels, job)];
}
