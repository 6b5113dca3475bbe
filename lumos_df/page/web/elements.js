// Building blocks of the document. Texts only ever become text nodes or attributes, never markup.

function el(tag, given = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(given)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "data") for (const [key, text] of Object.entries(value)) node.dataset[key] = text;
    else if (name === "style") Object.assign(node.style, value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

const JOINTS = /(?<=[_.,:/<>()=|-])(?=[^\s_.,:/<>()=|-])|(?<=[a-z])(?=[A-Z])/;

/** A text that is broken, where it has to be, only between the words of a name. */
const breakable = (text, joints = JOINTS) => text.split(joints).flatMap((part, place) => (place ? [el("wbr"), part] : [part]));

/** A sentence; what stands in backticks is a command, whose words stay whole. */
const prose = (text) => text.split("`").map((part, place) =>
  (place % 2 ? el("code", {}, ...part.split(" ").flatMap((word, number) => [number ? " " : "", el("span", {}, ...breakable(word, /(?<=\/)(?=[^/])/))])) : part));

/** A drop-down with its label; `options` are [value, text]. */
function choice(label, options, chosen, then) {
  const box = el("select", { onchange: () => then(box.value) });
  for (const [value, text] of options) box.append(el("option", { value, selected: String(value) === String(chosen) }, text));
  return el("label", {}, `${label} `, box);
}

function toggle(text, on, then) {
  const button = el("button", {
    type: "button",
    "aria-pressed": String(on),
    onclick: () => {
      const now = button.getAttribute("aria-pressed") !== "true";
      button.setAttribute("aria-pressed", String(now));
      then(now);
    },
  }, text);
  return button;
}

/** `entries` are [text, CSS variable of its colour, ...]. */
function legend(entries) {
  return el("div", { class: "legend" }, ...entries.map(([text, colour]) =>
    el("span", {}, el("i", { style: { background: `var(${colour})` } }), text)));
}

function rampLegend(low, high, ramp) {
  const colours = ["low", "mid", "high"].map((stop) => `var(--${ramp}-${stop})`).join(", ");
  return el("div", { class: "legend" }, el("span", {},
    low, el("i", { class: "ramp", style: { background: `linear-gradient(90deg, ${colours})` } }), high));
}

const tip = {
  /** Show beside a point of the window: a title and rows of [label, value, colour]. */
  show({ title, rows }, x, y) {
    const box = document.getElementById("tip");
    box.replaceChildren(el("strong", {}, ...breakable(title)), ...rows.map(([label, value, colour]) =>
      el("div", {}, el("span", {}, colour ? el("i", { style: { background: `var(${colour})` } }) : null, label), el("span", {}, value))));
    box.hidden = false;
    const { width, height } = box.getBoundingClientRect();
    box.style.left = `${Math.max(4, x + 16 + width > innerWidth ? x - width - 12 : x + 16)}px`;
    box.style.top = `${Math.max(4, Math.min(y + 14, innerHeight - height - 6))}px`;
  },
  hide() {
    document.getElementById("tip").hidden = true;
  },
};
