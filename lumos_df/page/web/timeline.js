// One step in time: a lane for each stream and thread of a rank, the critical path above; zoom, pan, pick a step and a rank.

const CLASS_COLOURS = { compute: "--compute", communication: "--exposed", memory: "--memory", host: "--host" };
const KIND_COLOURS = {
  host: "--host", launch: "--launch", kernel: "--compute", transfer: "--exposed", memory: "--memory", sync: "--sync",
  gap: "--gap", wait: "--wait", unknown: "--unexplained", unexplained: "--unexplained",
};
const LANE = 15;
/** On a narrower page, px, the names of lanes are shortened. */
const NARROW = 520;
/** A bar narrower than this, px, has no room for a name. */
const LEAST_NAME = 24;
/** Fewer letters than this of a longer name say nothing. */
const LEAST_LETTERS = 5;
/** A bar wider than this, px, keeps a gap to the next, or a row of them would look like one. */
const WITH_GAP = 4;

/** Lanes of a step's chosen ranks, in order: {title, label, slices: [{from, to, name, colour, critical, tip}]}. */
function lanesOf(data, labels, { step, rank: only }) {
  const { slices, ranks, path } = data;
  const ofStep = ranks.step.map((other) => other === step);
  const found = [];
  const pieces = path ? path.number.map((_, row) => row).filter((row) => ofStep[path.number[row]]) : [];
  if (pieces.length) {
    const drawn = pieces.map((row) => ({
      from: path.start_ns[row], to: path.start_ns[row] + path.dur_ns[row], name: path.plain[path.name[row]], colour: KIND_COLOURS[path.names[path.kind[row]]], critical: true,
      tip: () => ({
        title: path.names[path.name[row]],
        rows: [["critical path", data.kinds[path.names[path.kind[row]]], KIND_COLOURS[path.names[path.kind[row]]]], ["runs on rank", path.on_rank[row] ?? "one not here"],
          ["time on the path", asTime(path.time_ns[row])], ["pieces", asCount(path.pieces[row])], ["starts at", asTime(path.start_ns[row])]],
      }),
    }));
    found.push({ title: "critical path", label: `rank ${labels[ranks.place[path.number[pieces[0]]]]}`, slices: drawn });
  }
  const lanes = new Map();
  slices.number.forEach((number, row) => {
    const place = ranks.place[number];
    if (!ofStep[number] || (only !== null && place !== only)) return;
    const key = `${place}/${slices.lane[row]}`;
    if (!lanes.has(key)) lanes.set(key, { place, label: slices.names[slices.lane[row]], host: slices.names[slices.class[row]] === "host", slices: [], busy: 0 });
    const lane = lanes.get(key);
    const kind = slices.names[slices.class[row]];
    const [from, dur, rows] = [slices.start_ns[row], slices.dur_ns[row], slices.rows[row]];
    lane.busy += slices.busy_ns[row];
    lane.slices.push({
      from, to: from + dur, name: slices.plain[slices.name[row]], colour: CLASS_COLOURS[kind], critical: slices.critical[row],
      tip: () => ({
        title: rows > 1 ? `${rows.toLocaleString("en")} together, the longest ${slices.names[slices.name[row]]}` : slices.names[slices.name[row]],
        rows: [[`rank ${labels[place]}, ${lane.label}`, kind, CLASS_COLOURS[kind]], [rows > 1 ? "they run" : "runs", asTime(slices.busy_ns[row])],
          ["starts at", asTime(from)], ["on the critical path", slices.critical[row] ? "yes" : "no"]],
      }),
    });
  });
  // The host above its GPU; of streams the busiest first.
  const sorted = [...lanes.values()].sort((a, b) => a.place - b.place || b.host - a.host || b.busy - a.busy);
  let before = null;
  for (const lane of sorted) {
    found.push({ ...lane, title: lane.place === before ? "" : `rank ${labels[lane.place]}` });
    before = lane.place;
  }
  return found;
}

/** As much of a text as has room, with an ellipsis where it lost its end; nothing where too few letters fit. */
function fitting(context, text, room) {
  const letters = Math.floor((room / context.measureText(text).width) * text.length);
  if (letters >= text.length) return text;
  return letters > LEAST_LETTERS ? `${text.slice(0, letters - 1)}…` : "";
}

/** The last words of a text that have room; of the very last one, its end. */
function fittingEnd(context, text, room) {
  const words = text.split(" ");
  while (words.length > 1 && context.measureText(words.join(" ")).width > room) words.shift();
  const last = words.join(" ");
  const letters = Math.floor((room / context.measureText(last).width) * last.length);
  return letters >= last.length ? last : `…${last.slice(last.length - Math.max(0, letters - 1))}`;
}

function timeline(host, data, labels, state) {
  const lanes = lanesOf(data, labels, state);
  const all = lanes.flatMap((lane, number) => lane.slices.map((slice) => ({ ...slice, lane: number })));
  const starts = data.ranks.start_ns.filter((_, row) => data.ranks.step[row] === state.step);
  const ends = data.ranks.start_ns.map((start, row) => start + data.ranks.step_ns[row]).filter((_, row) => data.ranks.step[row] === state.step);
  const [begin, end] = [Math.min(...starts), Math.max(...ends, ...(data.path ? lanes[0].slices.map((slice) => slice.to) : []))];
  state.window ||= [begin, end];
  const area = { left: 148, top: 6 };
  const tops = [];
  let down = area.top;
  lanes.forEach((lane, number) => {
    if (number && lane.title) down += 7;
    tops.push(down);
    down += LANE + 1;
  });
  const x = (at) => area.left + ((at - state.window[0]) / (state.window[1] - state.window[0])) * (area.right - area.left);
  const drawn = chart(host, {
    height: down + 26,
    label: "Timeline of one step",
    count: all.length,
    draw(context, full, tall) {
      Object.assign(area, { left: full < NARROW ? 118 : 148, right: full - 6, bottom: tall - 22 });
      const dim = state.highlight && data.path;
      const colours = Object.fromEntries([...Object.values(CLASS_COLOURS), ...Object.values(KIND_COLOURS)].map((name) => [name, colourOf(name)]));
      const ink = colourOf("--text");
      context.textBaseline = "middle";
      lanes.forEach((lane, number) => {
        context.fillStyle = colourOf("--grid");
        context.globalAlpha = 0.5;
        context.fillRect(area.left, tops[number], area.right - area.left, LANE);
        context.globalAlpha = 1;
        context.textAlign = "left";
        context.fillStyle = colourOf("--text");
        if (lane.title) context.fillText(lane.title, 0, tops[number] + LANE / 2);
        context.fillStyle = colourOf("--soft");
        context.textAlign = "right";
        const room = area.left - 12 - (lane.title ? context.measureText(lane.title).width : 0);
        context.fillText(fittingEnd(context, lane.label, room), area.left - 6, tops[number] + LANE / 2);
      });
      const inks = Object.fromEntries(Object.entries(colours).map(([name, colour]) => [name, inkOn(parse(colour))]));
      const named = (slice, left, right) => {
        if (right - left < LEAST_NAME) return;
        const [whole, own] = [slice.name, slice.name.includes("::") ? slice.name.slice(slice.name.lastIndexOf("::") + 2) : slice.name];
        // The space of a name says less than its end does.
        const text = fitting(context, context.measureText(whole).width <= right - left - 5 || whole.includes("<") ? whole : own, right - left - 5);
        context.fillStyle = inks[slice.colour];
        if (text) context.fillText(text, left + 3, tops[slice.lane] + LANE / 2);
      };
      context.textAlign = "left";
      context.save();
      context.beginPath();
      context.rect(area.left, 0, area.right - area.left, tall);
      context.clip();
      for (const slice of all) {
        if (slice.to < state.window[0] || slice.from > state.window[1]) continue;
        const from = x(slice.from);
        context.globalAlpha = dim && !slice.critical ? 0.28 : 1;
        context.fillStyle = colours[slice.colour];
        const full = x(slice.to) - from;
        const wide = Math.max(0.7, full > WITH_GAP ? full - 1 : full);
        context.fillRect(from, tops[slice.lane], wide, LANE);
        if (slice.critical && slice.lane) {
          context.fillStyle = ink;
          context.fillRect(from, tops[slice.lane] + LANE - 2.5, wide, 2.5);
        }
        named(slice, Math.max(from, area.left), Math.min(from + wide, area.right));
      }
      context.restore();
      context.globalAlpha = 1;
      xAxis(context, area, state.window[0], state.window[1], asTime);
    },
    find(px, py) {
      if (px < area.left) return -1;
      const lane = tops.findIndex((top) => py >= top && py <= top + LANE);
      const at = state.window[0] + ((px - area.left) / (area.right - area.left)) * (state.window[1] - state.window[0]);
      const near = ((state.window[1] - state.window[0]) / (area.right - area.left)) * 1.5;
      let best = -1;
      all.forEach((slice, number) => {
        if (slice.lane === lane && slice.from - near <= at && at <= slice.to + near && (best < 0 || slice.to - slice.from < all[best].to - all[best].from)) best = number;
      });
      return best;
    },
    place: (number) => [Math.min(area.right, Math.max(area.left, x((all[number].from + all[number].to) / 2))), tops[all[number].lane]],
    mark(context, number) {
      const slice = all[number];
      const [from, to] = [Math.max(area.left, x(slice.from)), Math.min(area.right, x(slice.to))];
      context.strokeRect(from - 1, tops[slice.lane] - 1, Math.max(3, to - from + 2), LANE + 2);
    },
    tip: (number) => all[number].tip(),
  });

  const look = (from, to) => {
    const span = Math.min(end - begin, Math.max((end - begin) / 5000, to - from));
    const start = Math.min(end - span, Math.max(begin, from));
    state.window = [start, start + span];
    drawn.redraw();
  };
  const zoom = (factor, share = 0.5) => {
    const [from, to] = state.window;
    const [at, span] = [from + share * (to - from), (to - from) * factor];
    look(at - share * span, at + (1 - share) * span);
  };
  const shareOf = (event) => Math.min(1, Math.max(0, (event.clientX - drawn.top.getBoundingClientRect().left - area.left) / (area.right - area.left)));
  drawn.box.classList.add("pan");
  drawn.top.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    zoom(event.deltaY > 0 ? 1.25 : 0.8, shareOf(event));
  }, { passive: false });
  drawn.top.addEventListener("dblclick", (event) => zoom(0.4, shareOf(event)));
  let held = null;
  drawn.top.addEventListener("pointerdown", (event) => { held = { x: event.clientX, window: state.window }; drawn.top.setPointerCapture(event.pointerId); });
  drawn.top.addEventListener("pointerup", () => { held = null; });
  drawn.top.addEventListener("pointermove", (event) => {
    if (!held || event.clientX === held.x) return;
    const by = ((held.x - event.clientX) / (area.right - area.left)) * (held.window[1] - held.window[0]);
    look(held.window[0] + by, held.window[1] + by);
  });
  drawn.top.addEventListener("keydown", (event) => {
    const by = { "+": 0.6, "=": 0.6, "-": 1.7 }[event.key];
    if (by) zoom(by);
  });
  return { zoom, reset: () => look(begin, end) };
}
