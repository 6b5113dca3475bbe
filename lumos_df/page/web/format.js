// Numbers as people read them: as lumos_df.base.units writes them.

const scaled = (amount, units) => {
  let chosen = units[0];
  for (const unit of units) if (unit[1] * 0.9995 <= Math.max(Math.abs(amount), 1)) chosen = unit;
  const [name, size] = chosen;
  if (size === 1) return `${Math.round(amount * 100) / 100} ${name}`;
  const value = amount / size;
  return `${value.toFixed(Math.max(0, 3 - String(Math.trunc(Math.abs(value))).length))} ${name}`;
};

const TIMES = [["ns", 1], ["us", 1e3], ["ms", 1e6], ["s", 1e9], ["min", 6e10], ["h", 3.6e12]];
const SIZES = [["B", 1], ["KiB", 2 ** 10], ["MiB", 2 ** 20], ["GiB", 2 ** 30], ["TiB", 2 ** 40], ["PiB", 2 ** 50]];

const known = (write) => (value) => (value === null || value === undefined ? "–" : write(value));
const asTime = known((ns) => scaled(ns, TIMES));
const asBytes = known((bytes) => scaled(bytes, SIZES));
/** Memory of plans, in the decimal units of a GPU's data sheet and of `memory_gb`. */
const asGigabytes = known((bytes) => `${significant(bytes / 1e9)} GB`);
const asCount = known((number) => number.toLocaleString("en"));
/** One decimal each, so that those of a column stand below one another. */
const asPercent = known((share) => (share !== 0 && Math.abs(share) < 0.05 ? "<0.1%" : share === 0 ? "0%" : Math.abs(share) >= 99.95 ? `${share.toFixed(0)}%` : `${share.toFixed(1)}%`));
/** Of shares that are small by nature. */
const asExactPercent = known((share) => `${significant(share)}%`);
const asNumber = known((value) => significant(value));
const asBandwidth = known((gbps) => `${significant(gbps)} GB/s`);
const asText = known(String);
const asStep = (step) => (step === null ? "whole trace" : `step ${step}`);

function significant(value) {
  const size = Math.abs(value);
  if (size >= 100) return value.toLocaleString("en", { maximumFractionDigits: 0 });
  return String(Number(value.toPrecision(3)));
}

/** Round values for an axis from 0 to `most`, in the unit that fits `write`; about `wanted` of them. */
function ticks(most, wanted, write) {
  if (!(most > 0)) return [0];
  const units = write === asTime ? TIMES : write === asBytes ? SIZES : [["", 1]];
  const size = units.filter((unit) => unit[1] <= most).pop()?.[1] ?? 1;
  const rough = most / size / wanted;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].find((times) => times * power >= rough * 0.999) * power * size;
  const found = [];
  for (let at = 0; at <= most * 1.0001; at += step) found.push(at);
  return found;
}

/** Write the ticks of one axis alike: `1.5 s`, not `1.500 s`. */
function tickText(value, most, write) {
  if (write !== asTime && write !== asBytes) return write(Number(value.toPrecision(4)));
  const units = write === asTime ? TIMES : SIZES;
  const [name, size] = units.filter((unit) => unit[1] <= most).pop() || units[0];
  return `${Number((value / size).toPrecision(4))} ${name}`;
}

function quantile(sorted, share) {
  return sorted[Math.min(sorted.length - 1, Math.max(0, Math.ceil(share * sorted.length) - 1))];
}
