// Values over time, as lines.

const POINTS = 240;

/** lines: {name, x, y, end, colour, opacity}; all values are at least 0. */
function overTime(host, { lines, most, until, writeX, writeY, label, tip: tipOf, height = 190 }) {
  const area = { left: 64, top: 8 };
  const x = (at) => area.left + (at / (until || 1)) * (area.right - area.left);
  const y = (value) => area.bottom - (value / (most || 1)) * (area.bottom - area.top);
  return chart(host, {
    height,
    label,
    count: POINTS,
    draw(context, full, tall) {
      Object.assign(area, { right: full - 6, bottom: tall - 24 });
      yAxis(context, area, most, writeY);
      xAxis(context, area, 0, until, writeX);
      for (const line of lines) {
        context.strokeStyle = colourOf(line.colour);
        context.lineWidth = 1.5;
        context.globalAlpha = line.opacity;
        context.beginPath();
        // A value holds until the next one.
        line.x.forEach((at, number) => {
          if (number) context.lineTo(x(at), y(line.y[number - 1]));
          context.lineTo(x(at), y(line.y[number]));
        });
        context.lineTo(x(line.end), y(line.y[line.y.length - 1]));
        context.stroke();
      }
      context.globalAlpha = 1;
    },
    find(px) {
      return px < area.left || px > area.right ? -1 : Math.min(POINTS - 1, Math.floor(((px - area.left) / (area.right - area.left)) * POINTS));
    },
    place: (number) => [area.left + ((number + 0.5) / POINTS) * (area.right - area.left), area.top + 20],
    mark(context, number) {
      context.lineWidth = 1;
      const at = Math.round(this.place(number)[0]) + 0.5;
      context.beginPath();
      context.moveTo(at, area.top);
      context.lineTo(at, area.bottom);
      context.stroke();
    },
    tip: (number) => tipOf(((number + 0.5) / POINTS) * until),
  });
}

/** The value of a line at a moment: that of the last point not after it. */
function valueAt(line, moment) {
  let [low, high] = [0, line.x.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (line.x[middle] <= moment) low = middle + 1;
    else high = middle;
  }
  return low ? line.y[low - 1] : null;
}
