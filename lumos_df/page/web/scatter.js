// Points, with the range that each may move in; axes that cover several powers of ten are logarithmic.

const MARKS = ["--compute", "--exposed", "--overlap", "--memory", "--host", "--launch", "--sync", "--wait"];

function axisOf(values) {
  const found = values.filter((value) => value > 0);
  let [low, high] = [Math.min(...found), Math.max(...found)];
  const log = found.length > 0 && high / low > 20;
  if (log) [low, high] = [low / 1.6, high * 1.6];
  else [low, high] = [0, (high || 1) * 1.08];
  return { low, high, log, at: (value) => (log ? Math.log(Math.max(value, low) / low) / Math.log(high / low) : value / high) };
}

/** 1, 10, 100 of each unit of time below the minute, 1 and 10 of those above. */
const TIME_POWERS = TIMES.flatMap(([name, size]) => (["ns", "us", "ms"].includes(name) ? [size, 10 * size, 100 * size] : [size, 10 * size]));

function axisTicks(axis, wanted, write) {
  if (!axis.log) return ticks(axis.high, wanted, write);
  if (write === asTime) return TIME_POWERS.filter((value) => axis.low <= value && value <= axis.high);
  const base = write === asBytes ? 2 : 10;
  const [first, last] = [axis.low, axis.high].map((value) => Math.log(value) / Math.log(base));
  const step = [1, 2, 3, 4, 5, 10].find((powers) => (last - first) / powers <= wanted + 1) || 20;
  const found = [];
  for (let power = Math.ceil(first / step - 1e-9) * step; power <= last; power += step) found.push(base ** power);
  return found;
}

/** points: {x, y, low, high, size, colour, filled, tip()}; joined: numbers of points that a line joins. */
function scatter(host, { points, writeX, writeY, nameX, nameY, label, joined = [] }) {
  const area = { left: 74, top: 12 };
  const [across, up] = [axisOf(points.map((point) => point.x)), axisOf(points.flatMap((point) => [point.low ?? point.y, point.high ?? point.y]))];
  const x = (value) => area.left + across.at(value) * (area.right - area.left);
  const y = (value) => area.bottom - up.at(value) * (area.bottom - area.top);
  return chart(host, {
    height: 270,
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
      context.fillText(`↑ ${nameY}`, area.left, area.bottom + 22);
      if (joined.length > 1) {
        context.strokeStyle = colourOf("--exposed");
        context.setLineDash([5, 4]);
        context.beginPath();
        joined.forEach((number) => context.lineTo(x(points[number].x), y(points[number].y)));
        context.stroke();
        context.setLineDash([]);
      }
      for (const point of points) {
        context.strokeStyle = context.fillStyle = colourOf(point.colour);
        context.lineWidth = 1.2;
        context.globalAlpha = 0.55;
        context.beginPath();
        context.moveTo(x(point.x), y(point.low ?? point.y));
        context.lineTo(x(point.x), y(point.high ?? point.y));
        context.stroke();
        context.globalAlpha = point.filled === false ? 0.45 : 0.85;
        context.beginPath();
        context.arc(x(point.x), y(point.y), point.size || 4, 0, 2 * Math.PI);
        context.fill();
      }
      context.globalAlpha = 1;
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
