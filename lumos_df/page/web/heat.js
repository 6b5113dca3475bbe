// A heat map: rows against columns, hundreds of each. Without a value a cell stays empty.

const parse = (colour) => {
  const hex = colour.replace("#", "");
  return [0, 2, 4].map((at) => parseInt(hex.slice(at, at + 2), 16));
};

/** The colour of a text that is read on another. */
const inkOn = ([r, g, b]) => (0.3 * r + 0.59 * g + 0.11 * b > 140 ? "#10151b" : "#ffffff");

/** A function from 0..1 to [r, g, b], through the three colours of a ramp. */
function rampOf(name) {
  const stops = ["low", "mid", "high"].map((stop) => parse(colourOf(`--${name}-${stop}`)));
  return (share) => {
    const at = Math.min(1, Math.max(0, share)) * 2;
    const low = Math.min(1, Math.floor(at));
    return stops[low].map((value, channel) => Math.round(value + (stops[low + 1][channel] - value) * (at - low)));
  };
}

/**
 * rows, columns: labels; values[row][column], null for none; most: the value of the darkest colour;
 * ends: [from, to, write] when columns are time; cells: whether values are written into cells that have room.
 */
function heat(host, { rows, columns, values, most, ramp, write, label, rowName, columnName, tip: tipOf, ends, cells }) {
  const count = ends ? values.reduce((longest, row) => Math.max(longest, row.length), 0) : columns.length;
  const height = Math.min(440, Math.max(rows.length * 20, 60)) + 40;
  const area = { left: 64, top: 8 };
  let cell = { width: 1, height: 1 };
  const layout = (full, tall) => {
    area.bottom = tall - 36;
    const room = full - 4 - area.left;
    cell = { width: cells ? Math.min(count < 4 ? 200 : 110, room / count) : room / count, height: (area.bottom - area.top) / rows.length };
    area.right = area.left + cell.width * count;
  };
  return chart(host, {
    height,
    label,
    count: rows.length * count,
    stride: count,
    draw(context, full, tall) {
      layout(full, tall);
      const colour = rampOf(ramp);
      const small = new OffscreenCanvas(count, rows.length);
      const pixels = new ImageData(count, rows.length);
      values.forEach((row, y) => row.forEach((value, x) => {
        if (value === null || value === undefined) return;
        const at = 4 * (y * count + x);
        pixels.data.set([...colour(most ? value / most : 0), 255], at);
      }));
      small.getContext("2d").putImageData(pixels, 0, 0);
      context.imageSmoothingEnabled = false;
      context.drawImage(small, area.left, area.top, area.right - area.left, area.bottom - area.top);
      if (cell.height > 12) {
        context.fillStyle = colourOf("--card");
        for (let y = 1; y < rows.length; y += 1) context.fillRect(area.left, area.top + y * cell.height - 0.5, area.right - area.left, 1);
      }
      context.textBaseline = "middle";
      if (cells && cell.width > 54 && cell.height > 14) {
        context.textAlign = "center";
        values.forEach((row, y) => row.forEach((value, x) => {
          if (value === null || value === undefined) return;
          context.fillStyle = inkOn(colour(most ? value / most : 0));
          context.fillText(value === 0 ? "0" : write(value), area.left + (x + 0.5) * cell.width, area.top + (y + 0.5) * cell.height);
        }));
      }
      context.fillStyle = colourOf("--soft");
      context.textAlign = "right";
      const every = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024].find((n) => n * cell.height >= 13) || rows.length;
      rows.forEach((name, y) => y % every === 0 && context.fillText(name, area.left - 6, area.top + (y + 0.5) * cell.height));
      if (ends) xAxis(context, area, ends[0], ends[1], ends[2]);
      else placeLabels(context, columns, (x) => area.left + (x + 0.5) * cell.width, area.bottom + 5, cell.width);
      context.fillStyle = colourOf("--soft");
      context.textAlign = "left";
      context.textBaseline = "top";
      context.fillText(`${rowName} ↑   ${columnName} →`, area.left, area.bottom + 21);
    },
    find(px, py) {
      const [x, y] = [Math.floor((px - area.left) / cell.width), Math.floor((py - area.top) / cell.height)];
      return x >= 0 && x < count && y >= 0 && y < rows.length ? y * count + x : -1;
    },
    place: (number) => [area.left + ((number % count) + 0.5) * cell.width, area.top + (Math.floor(number / count) + 0.5) * cell.height],
    mark(context, number) {
      context.strokeRect(area.left + (number % count) * cell.width, area.top + Math.floor(number / count) * cell.height, Math.max(2, cell.width), Math.max(2, cell.height));
    },
    tip: (number) => tipOf(Math.floor(number / count), number % count),
  });
}
