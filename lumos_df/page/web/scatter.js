// Points, with the range that each may move in; axes that cover several powers of ten are logarithmic.

/** Of more points than this the ranges of those without a name are only hinted at. */
const MANY = 60;
const MARKS = ["--compute", "--exposed", "--overlap", "--memory", "--host", "--launch", "--sync", "--wait"];

/** More than this many times the least value, the most would press times together on an axis that is not logarithmic. */
const WIDE_TIMES = 4;

/** From the least to the most value, with some room; from 0 where that costs little room, logarithmic where they are far apart. */
function axisOf(values, wide = 20) {
  const found = values.filter((value) => value > 0);
  let [low, high] = [Math.min(...found), Math.max(...found)];
  const log = found.length > 0 && high / low > wide;
  const room = 0.06 * (high - low) || 0.1 * high;
  if (log) [low, high] = [low / 1.3, high * 1.2];
  else if (found.length && low > 0.3 * high) [low, high] = [low - room, high + room];
  else [low, high] = [0, (high || 1) * 1.08];
  return { low, high, log, at: (value) => (log ? Math.log(Math.max(value, low) / low) / Math.log(high / low) : (value - low) / (high - low)) };
}

/** Round times: 1, 2, 5, 10 and so on of each unit, as often as there are of the next. */
const ROUND_TIMES = TIMES.flatMap(([name, size]) => (["s", "min"].includes(name) ? [1, 2, 5, 10, 20, 30] : [1, 2, 5, 10, 20, 50, 100, 200, 500]).map((times) => times * size));

/** At most so many of some values of a logarithmic axis: all, those that begin with 1, or every nth of them. */
function thinned(values, wanted, write) {
  if (values.length <= wanted) return values;
  const firsts = values.filter((value) => tickText(value, value, write).startsWith("1"));
  const few = firsts.length >= 2 ? firsts : values;
  return few.filter((_, place) => place % Math.ceil(few.length / wanted) === 0);
}

function axisTicks(axis, wanted, write) {
  if (!axis.log) {
    const step = ticks(axis.high - axis.low, wanted, write)[1] || axis.high;
    const first = Math.ceil(axis.low / step - 1e-9);
    return Array.from({ length: Math.max(0, Math.floor(axis.high / step) - first + 1) }, (_, number) => (first + number) * step);
  }
  if (write === asTime) return thinned(ROUND_TIMES.filter((value) => axis.low <= value && value <= axis.high), wanted + 4, write);
  const base = write === asBytes ? 2 : 10;
  const [first, last] = [axis.low, axis.high].map((value) => Math.log(value) / Math.log(base));
  const step = [1, 2, 3, 4, 5, 10].find((powers) => (last - first) / powers <= wanted + 1) || 20;
  const found = [];
  for (let power = Math.ceil(first / step - 1e-9) * step; power <= last; power += step) found.push(base ** power);
  return found;
}

/** Numbers in their points, and names beside or below those that have room: none covers another or a point that has a name. */
function writeNames(context, area, points, limits, x, y) {
  const named = points.filter(({ name }) => name);
  const taken = [...named.map((point) => ({ left: x(point.x) - point.size, right: x(point.x) + point.size, top: y(point.y) - point.size, bottom: y(point.y) + point.size })),
    ...limits.map(([at]) => ({ left: x(at) - 2, right: x(at) + 2, top: area.top, bottom: area.bottom }))];
  context.textBaseline = "middle";
  for (const point of named) {
    context.textAlign = "center";
    context.fillStyle = inkOn(parse(colourOf(point.colour)));
    context.fillText(point.number, x(point.x), y(point.y) + 0.5);
    const wide = context.measureText(point.name).width;
    const [at, below, beside] = [x(point.x), y(point.y) + point.size + 9, point.size + 5];
    const places = [[at - wide / 2, below], [at + 4 - wide, below], [at - 4, below], [at + beside, y(point.y)], [at - beside - wide, y(point.y)]];
    const boxes = places.map(([left, middle]) => ({ left, right: left + wide, top: middle - 7, bottom: middle + 7 }));
    const free = boxes.find((box) => box.left >= area.left && box.right <= area.right && box.bottom <= area.bottom
      && !taken.some((other) => box.left < other.right && other.left < box.right && box.top < other.bottom && other.top < box.bottom));
    if (!free) continue;
    taken.push(free);
    context.globalAlpha = 0.75;
    context.fillStyle = colourOf("--card");
    context.fillRect(free.left - 2, free.top, wide + 4, 14);
    context.globalAlpha = 1;
    context.fillStyle = colourOf("--text");
    context.textAlign = "left";
    context.fillText(point.name, free.left, (free.top + free.bottom) / 2);
  }
}

/**
 * points: {x, y, low, high, size, colour, number, name, tip()}: a number is written into its point, its name beside it where there is room;
 * joined: numbers of points that a line joins; limits: [x, name] of upright lines.
 */
function scatter(host, { points, writeX, writeY, nameX, nameY, label, joined = [], limits = [], height = 270 }) {
  const area = { left: 74, top: 22 };
  const [across, up] = [axisOf([...points.map((point) => point.x), ...limits.map(([at]) => at)]), axisOf(points.flatMap((point) => [point.low ?? point.y, point.high ?? point.y]), writeY === asTime ? WIDE_TIMES : undefined)];
  const x = (value) => area.left + across.at(value) * (area.right - area.left);
  const y = (value) => area.bottom - up.at(value) * (area.bottom - area.top);
  return chart(host, {
    height,
    label,
    count: points.length,
    draw(context, full, tall) {
      Object.assign(area, { right: full - 14, bottom: tall - 38 });
      const [grid, soft] = [colourOf("--grid"), colourOf("--soft")];
      context.textBaseline = "middle";
      context.textAlign = "right";
      for (const value of axisTicks(up, 4, writeY)) {
        context.fillStyle = grid;
        context.fillRect(area.left, Math.round(y(value)), area.right - area.left, 1);
        context.fillStyle = soft;
        context.fillText(tickText(value, up.log ? value : up.high, writeY), area.left - 6, y(value));
      }
      context.textBaseline = "top";
      context.textAlign = "center";
      for (const value of axisTicks(across, 5, writeX)) {
        context.fillStyle = grid;
        context.fillRect(Math.round(x(value)), area.top, 1, area.bottom - area.top);
        context.fillStyle = soft;
        context.textAlign = x(value) < area.left + 16 ? "left" : "center";
        context.fillText(tickText(value, across.log ? value : across.high, writeX), x(value), area.bottom + 5);
      }
      context.textAlign = "right";
      context.fillText(`${nameX} →`, area.right, area.bottom + 22);
      context.textAlign = "left";
      context.fillText(`↑ ${nameY}`, area.left, 2);
      if (joined.length > 1) {
        context.strokeStyle = colourOf("--exposed");
        context.setLineDash([5, 4]);
        context.beginPath();
        joined.forEach((number) => context.lineTo(x(points[number].x), y(points[number].y)));
        context.stroke();
        context.setLineDash([]);
      }
      // Those with a name above the others.
      for (const point of [...points.filter(({ name }) => !name), ...points.filter(({ name }) => name)]) {
        context.strokeStyle = context.fillStyle = colourOf(point.colour);
        context.lineWidth = 1.2;
        context.globalAlpha = points.length > MANY && !point.name ? 0.15 : 0.55;
        context.beginPath();
        context.moveTo(x(point.x), y(point.low ?? point.y));
        context.lineTo(x(point.x), y(point.high ?? point.y));
        context.stroke();
        context.globalAlpha = point.name ? 1 : points.length > MANY ? 0.55 : 0.85;
        context.beginPath();
        context.arc(x(point.x), y(point.y), point.size || 4, 0, 2 * Math.PI);
        context.fill();
      }
      context.globalAlpha = 1;
      context.lineWidth = 1.5;
      for (const [at, name] of limits) {
        context.strokeStyle = context.fillStyle = colourOf("--text");
        context.beginPath();
        context.moveTo(x(at), area.top);
        context.lineTo(x(at), area.bottom);
        context.stroke();
        context.textAlign = x(at) > (area.left + area.right) / 2 ? "right" : "left";
        context.textBaseline = "top";
        context.fillText(name, x(at) + (context.textAlign === "right" ? -6 : 6), area.top);
      }
      writeNames(context, area, points, limits, x, y);
    },
    find(px, py) {
      let [best, distance] = [-1, 18];
      points.forEach((point, number) => {
        const away = Math.hypot(x(point.x) - px, y(point.y) - py);
        if (away < distance) [best, distance] = [number, away];
      });
      return best;
    },
    place: (number) => [x(points[number].x), y(points[number].y)],
    mark(context, number) {
      context.beginPath();
      context.arc(x(points[number].x), y(points[number].y), (points[number].size || 4) + 3, 0, 2 * Math.PI);
      context.stroke();
    },
    tip: (number) => points[number].tip(),
  });
}
