// What to change: each change with its gain, how it is known and the command that shows it; then what would not help.

const LISTED = 8;

/** The change of a time or a share with its sign; what rounds to nothing has none. */
function signed(write, amount) {
  const text = write(Math.abs(amount));
  return Number.parseFloat(text) === 0 ? text : `${amount > 0 ? "+" : "\u2212"}${text}`;
}
const asShare = (share) => `${share >= 9.95 ? share.toFixed(0) : share.toFixed(1)}%`;

function adviceItem(rows, row) {
  const raw = (key) => ({ advice: key, v: String(rows[key][row]) });
  return el("li", {},
    el("b", { class: "gain", data: raw("gain_ns") }, signed(asTime, -rows.gain_ns[row])),
    el("span", { class: "part", data: raw("gain_pct") }, signed(asShare, -rows.gain_pct[row])),
    el("div", { class: "change" },
      el("p", { title: rows.what[row], data: raw("what") }, ...breakable(rows.plain[row])),
      el("p", { class: "rests" }, el("span", { class: "badge" }, rows.known[row]), `  ${signed(asTime, -rows.high_ns[row])} to ${signed(asTime, -rows.low_ns[row])}  ·  ${rows.rests_on[row]}`),
      el("p", { class: "command" }, ...prose(`\`lumos-df ${rows.command[row]} ${DATA.option}\``))));
}

function adviceList(host, rows) {
  const worth = rows.what.map((_, row) => row).filter((row) => rows.worthwhile[row]);
  const list = el("ol", { class: "advice" });
  const fill = (shown) => list.replaceChildren(...shown.map((row) => adviceItem(rows, row)));
  fill(worth.slice(0, LISTED));
  host.append(list);
  if (worth.length > LISTED) {
    const more = el("button", { type: "button", onclick: () => { fill(worth); more.remove(); } }, `show all ${worth.length}`);
    host.append(more);
  }
  const rest = rows.what.map((_, row) => row).filter((row) => !rows.worthwhile[row]);
  if (rest.length) {
    host.append(el("p", { class: "rest" }, "Not worth it: ", [...new Set(rest.map((row) => `${rows.plain[row]}, ${signed(asShare, -rows.gain_pct[row])}`))].join("; ")));
  }
}
