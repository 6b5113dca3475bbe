// Tables that sort by a click; every cell carries its raw value.

/** A text of more letters is a name. */
const LONGEST_WORD = 12;

/** An interval of times as a bar with its middle marked, between the ends of all of them. */
function rangeBar(low, middle, high, [from, to]) {
  const at = (value) => `${(100 * (value - from)) / (to - from || 1)}%`;
  const words = `${asTime(low)} to ${asTime(high)}`;
  return el("div", { role: "img", "aria-label": words, title: words }, el("i", { style: { left: at(low), width: `calc(${at(high)} - ${at(low)})` } }), el("b", { style: { left: at(middle) } }));
}

/**
 * columns: {key, label, write, bar, minor}; a minor one gives way on a narrow page; rows: an object of lists of one length. `limit` rows are shown until all are asked for.
 * `range` are the keys of the ends and the middle of an interval, drawn as a bar.
 * A text column is one whose `write` is asText; `shown` is the key of what stands for it, and the whole is told on hover;
 * of a number `hover` is the key of what is told on hover.
 */
function table(host, { name, caption, columns, rows, limit = 500 }) {
  const count = rows[columns[0].key].length;
  let order = Array.from({ length: count }, (_, row) => row);
  let sorted = { key: null, down: true };
  let shown = Math.min(limit, count);
  const body = el("tbody");
  const kindOf = (column, kind) => [kind, column.minor && "minor"].filter(Boolean).join(" ") || undefined;
  // Names need room to be read where they are cut; words do not.
  const textKind = new Map(columns.map((column) => [column, rows[column.key].some((text) => String(text).length > LONGEST_WORD) ? "name" : ""]));
  const heads = columns.map((column) => el("th", { scope: "col", class: kindOf(column, column.write === asText || column.range ? "" : "n"), data: { column: column.key } },
    el("button", { type: "button", onclick: () => sort(column) }, column.label)));
  const more = el("button", { type: "button", onclick: () => { shown = count; fill(); } });
  const most = Object.fromEntries(columns.filter((column) => column.bar).map((column) => [column.key, Math.max(...rows[column.key], 1e-9)]));
  // Intervals share the scale of those that are shown.
  const endsOf = ({ range: [low, , high] }, seen) => [Math.min(...seen.map((row) => rows[low][row])), Math.max(...seen.map((row) => rows[high][row]))];
  let ends = new Map();

  const cell = (column, row) => {
    const value = rows[column.key][row];
    const text = column.write(value);
    const raw = value === null ? "" : String(value);
    if (column.write === asText) return el("td", { class: kindOf(column, textKind.get(column)), title: column.shown ? text : undefined, data: { v: raw } }, el("div", {}, ...breakable(column.shown ? asText(rows[column.shown][row]) : text)));
    if (column.range) return el("td", { class: "range", data: { v: raw } }, rangeBar(...column.range.map((key) => rows[key][row]), ends.get(column)));
    const fill = column.bar && value > 0 ? el("span", { class: "fill", style: { width: `${Math.max(1, (60 * value) / most[column.key])}px` } }) : null;
    return el("td", { class: kindOf(column, "n"), title: column.hover && rows[column.hover][row], data: { v: raw } }, fill, text);
  };
  const fill = () => {
    const seen = order.slice(0, shown);
    ends = new Map(columns.filter((column) => column.range).map((column) => [column, endsOf(column, seen)]));
    body.replaceChildren(...seen.map((row) => el("tr", {}, ...columns.map((column) => cell(column, row)))));
    more.hidden = shown >= count;
    more.textContent = `show all ${count.toLocaleString("en")}`;
    heads.forEach((head, place) => head.setAttribute("aria-sort",
      columns[place].key !== sorted.key ? "none" : sorted.down ? "descending" : "ascending"));
  };
  const sort = (column) => {
    sorted = { key: column.key, down: sorted.key === column.key ? !sorted.down : column.write !== asText };
    const values = rows[column.key];
    const sign = sorted.down ? -1 : 1;
    order.sort((a, b) => {
      const [x, y] = [values[a], values[b]];
      if (x === null || y === null) return (x === null) - (y === null) || a - b;
      return (typeof x === "string" ? x.localeCompare(y, "en", { numeric: true }) : x - y) * sign || a - b;
    });
    fill();
  };
  const id = `t-${name}`;
  host.append(el("p", { class: "caption", id }, caption), el("div", { class: "scroll", tabindex: "0", role: "region", "aria-labelledby": id },
    el("table", { "aria-labelledby": id, data: { table: name } }, el("thead", {}, el("tr", {}, ...heads)), body)), more);
  fill();
}

/** The same, folded away until it is asked for. */
function numbers(host, spec, text = "Numbers") {
  const folded = el("details", { ontoggle: () => folded.open && folded.childElementCount === 1 && table(folded, spec) }, el("summary", {}, text));
  host.append(folded);
}
