// Stacked columns: one a rank and step, any number of them.

/** items: {label, group, values, tip}; parts: [name, colour]; `write` writes a value. */
function stackedColumns(host, { items, parts, write, label, axis, height: tall = 240 }) {
  const area = { left: 64, top: 8 };
  const totals = items.map((item) => item.values.reduce((sum, value) => sum + value, 0));
  const most = Math.max(...totals, 0) * 1.02 || 1;
  const groups = [];
  items.forEach((item, place) => {
    if (!groups.length || groups[groups.length - 1].name !== item.group) groups.push({ name: item.group, first: place, count: 0 });
    groups[groups.length - 1].count += 1;
  });
  const grouped = groups.length > 1;
  let width = 0;
  let between = 0;
  const layout = (full, height) => {
    Object.assign(area, { right: full - 4, bottom: height - (grouped ? 38 : 36) });
    between = grouped ? 14 : 0;
    width = (area.right - area.left - between * (groups.length - 1)) / items.length;
  };
  const groupOf = [];
  groups.forEach((group, number) => { for (let i = 0; i < group.count; i += 1) groupOf.push(number); });
  const left = (place) => area.left + place * width + groupOf[place] * between;
  const y = (value) => area.bottom - (value / most) * (area.bottom - area.top);
  // A few columns stay slim, in the middle of their place.
  const slim = () => Math.min(width > 6 ? width - Math.min(8, width * 0.18) : width, 56);
  const inset = () => (width - slim()) / 2;

  return chart(host, {
    height: tall,
    label,
    count: items.length,
    draw(context, full, height) {
      layout(full, height);
      yAxis(context, area, most, write);
      const colours = parts.map((part) => colourOf(part[1]));
      // Narrow columns stand on whole pixels, or their edges would show as a pattern.
      const edge = width < 4 ? Math.round : (at) => at;
      items.forEach((item, place) => {
        const start = edge(left(place) + inset());
        const wide = Math.max(1, edge(left(place) + inset() + slim()) - start);
        let from = 0;
        item.values.forEach((value, part) => {
          if (value > 0) {
            const top = y(from + value);
            context.fillStyle = colours[part];
            context.fillRect(start, top, wide, y(from) - top);
          }
          from += value;
        });
      });
      placeLabels(context, items.map((item) => item.label), (place) => left(place) + width / 2, area.bottom + 5, width);
      context.textAlign = "center";
      if (!grouped) {
        context.fillText(axis, (area.left + area.right) / 2, area.bottom + 20);
      } else {
        context.fillStyle = colourOf("--text");
        const room = (area.right - area.left) / groups.length;
        placeLabels(context, groups.map((group) => group.name), (number) => left(groups[number].first) + (groups[number].count * width) / 2, area.bottom + 20, room);
      }
    },
    find(px, py) {
      if (px < area.left || py > area.bottom + 18) return -1;
      for (let number = 0; number < groups.length; number += 1) {
        const { first, count } = groups[number];
        const place = Math.floor((px - left(first)) / width);
        if (place >= 0 && place < count) return first + place;
      }
      return -1;
    },
    place: (place) => [left(place) + width / 2, y(totals[place])],
    mark(context, place) {
      context.strokeRect(left(place) + inset() - 1, y(totals[place]) - 1, slim() + 2, area.bottom - y(totals[place]) + 1);
    },
    tip: (place) => items[place].tip(),
  });
}

/** How many values spread, and who is at both ends: what a chart of hundreds of ranks does not let one read off. */
function spread(host, name, values, labels, write) {
  const order = values.map((value, place) => [value, place]).filter(([value]) => value !== null).sort((a, b) => a[0] - b[0]);
  if (order.length < 17) return;
  const sorted = order.map(([value]) => value);
  if (sorted[0] === sorted[sorted.length - 1]) {
    host.append(el("div", { class: "spread" }, el("span", {}, `${name}: `, el("b", {}, write(sorted[0])), ` on each of ${order.length} ranks`)));
    return;
  }
  const facts = [["least", sorted[0]], ["quarter", quantile(sorted, 0.25)], ["median", quantile(sorted, 0.5)],
    ["three quarters", quantile(sorted, 0.75)], ["most", sorted[sorted.length - 1]]];
  const ends = (few) => few.map(([, place]) => labels[place]).join(", ");
  // An end that half of them share names nobody.
  const low = sorted[0] < facts[2][1] && el("span", {}, "lowest: rank ", el("b", {}, ends(order.slice(0, 4))));
  const high = sorted[sorted.length - 1] > facts[2][1] && el("span", {}, "highest: rank ", el("b", {}, ends(order.slice(-4).reverse())));
  host.append(el("div", { class: "spread" }, el("span", {}, `${name}:`),
    ...facts.map(([text, value]) => el("span", {}, `${text} `, el("b", { data: { v: String(value), spread: text } }, write(value)))), ...[low, high].filter(Boolean)));
}
