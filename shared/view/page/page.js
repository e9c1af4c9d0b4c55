"use strict";
// The page of a run: live over /v1/…, or a report with its data inside. No other resources.
(() => {
const report = JSON.parse(document.getElementById("data").textContent);
const app = document.getElementById("app");
const kBuckets = 700;  // points of a drawn line; more are averaged, with a band from minimum to maximum
const colors = ["--train", "--val", "--third", "--fourth", "--fifth", "--sixth"];

// ---- Text: the rules of shared/base/readable_format.h

const isNumber = x => typeof x === "number" && isFinite(x);
const group = digits => digits.replace(/\B(?=(\d{3})+$)/g, "\u202f");
function number(x, digits) {
  if (!isNumber(x)) return "–";
  if (x === 0) return "0";
  const rounded = x.toExponential(digits - 1), [mantissa, exponent] = [rounded.split("e")[0], Number(rounded.split("e")[1])];
  if (exponent < -4 || exponent >= 7) return mantissa + "e" + exponent;
  const decimals = Math.max(0, digits - 1 - exponent);
  return decimals > 0 ? x.toFixed(decimals) : group(Number(rounded).toFixed(0));
}
const format = x => number(x, 4);  // a loss or a metric
const rate = x => number(x, 3);
const milliseconds = x => x > 0 && x < .01 ? "<0.01" : rate(x);
const count = x => isNumber(x) ? group(Math.round(x).toString()) : "–";
// A label of an axis, which has ticks of round numbers.
function tick(x) {
  const size = Math.abs(x);
  if (size !== 0 && (size < 1e-4 || size >= 1e7)) return Number(x.toPrecision(3)).toExponential().replace("e+", "e");
  return size >= 1e4 ? count(x) : String(Number(x.toPrecision(6)));
}
function bytes(x) {
  if (!isNumber(x)) return "–";
  const units = ["B", "kB", "MB", "GB", "TB", "PB", "EB"];
  if (x < 1000) return x + " B";
  let unit = 1;
  for (x /= 1000; x >= 999.5 && unit < 6; ++unit) x /= 1000;
  return rate(x) + " " + units[unit];
}
function duration(s) {
  if (!isNumber(s) || s < 0) return "–";
  if (s < 99.5) return s.toFixed(s < 9.95 ? 1 : 0) + " s";
  s = Math.round(s);
  if (s < 3600) return Math.floor(s / 60) + " min " + s % 60 + " s";
  if (s < 86400) return Math.floor(s / 3600) + " h " + Math.floor(s % 3600 / 60) + " min";
  return Math.floor(s / 86400) + " d " + Math.floor(s % 86400 / 3600) + " h";
}
function estimate(s) {
  if (!isNumber(s) || s < 0) return "–";
  const unit = s < 99.5 ? 1 : s < 600 ? 10 : s < 86400 ? 60 : 3600, rounded = Math.max(1, Math.round(s / unit) * unit);
  return rounded < 99.5 ? rounded + " s" : duration(rounded).replace(/ 0 (s|min|h)$/, "");
}
const secondsSince = time => time ? (Date.now() - Date.parse(time)) / 1000 : NaN;
function age(time) {  // of the future: a clock of another machine
  const seconds = secondsSince(time);
  return seconds >= 0 ? (seconds < 60 ? Math.floor(seconds) + " s" : duration(Math.floor(seconds))) + " ago" : "–";
}
const words = name => name.replace("_per_", "/").replaceAll("_", " ");
// What a run contains as text, of any type: String() calls an object's own toString, which can be anything.
const text = x => typeof x === "string" ? x : x === undefined || x === null ? "" : JSON.stringify(x);
// In the zone of the browser, which is named where times are: "2026-11-27 23:10:05".
const zone = (() => {
  try { return new Intl.DateTimeFormat("en", {timeZoneName: "short"}).formatToParts().find(part => part.type === "timeZoneName").value; } catch { return "local time"; }
})();
function timestamp(x) {
  const date = new Date(text(x));
  if (isNaN(date)) return text(x).slice(0, 19);
  return new Date(date - date.getTimezoneOffset() * 60000).toISOString().slice(0, 19).replace("T", " ");
}
// With the day of the week, and in the title UTC.
function when(x) {
  const date = new Date(text(x));
  return isNaN(date) ? "–" : h("time", {datetime: text(x), title: text(x) + " (UTC)"}, ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"][date.getDay()] + " " + timestamp(x).slice(0, 16));
}
// A part of the page that cannot be drawn does not hide the others, nor other runs.
function attempt(draw, otherwise) {
  try { return draw(); } catch (error) { return otherwise("cannot be shown: " + error.message); }
}

// ---- Elements

function h(tag, props, ...children) {
  const element = document.createElement(tag);
  for (const [key, value] of Object.entries(props || {})) {
    if (key === "class") element.className = value;
    else if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children.flat().filter(x => x !== null && x !== undefined));
  return element;
}
const kSvg = "http://www.w3.org/2000/svg";
function s(tag, props, ...children) {
  const element = document.createElementNS(kSvg, tag);
  for (const [key, value] of Object.entries(props || {})) element.setAttribute(key, value);
  element.append(...children.flat());
  return element;
}
let nextId = 0;
function card(title, size, ...children) {
  const id = "h" + ++nextId;
  const value = h("span", {class: "value"});
  const head = h("div", {class: "head"}, h("h2", {id}, title), value);
  const element = h("section", {class: "card " + size, "aria-labelledby": id}, head, ...children);
  return Object.assign(element, {head, value});
}
const button = (name, onclick, props = {}) => h("button", {type: "button", onclick, ...props}, name);
function table(titles, rows, caption, attributes = []) {
  return h("div", {class: "scroll", tabindex: 0, role: "region", "aria-label": caption}, h("table", null,
    h("caption", {class: "hidden"}, caption),
    h("thead", null, h("tr", null, titles.map(t => h("th", {scope: "col", class: t.startsWith("<") ? "left" : null}, t.startsWith("<") ? t.slice(1) : t)))),
    h("tbody", null, rows.map((row, i) => h("tr", attributes[i] || null, row.map(cell => cell instanceof Node && cell.tagName === "TD" ? cell : h("td", null, cell)))))));
}
// Buttons in the heads of a table that sort by their columns.
function sortable(view, [column, descending], onSort) {
  view.querySelectorAll("th").forEach((head, k) => {
    if (!head.textContent) return;
    const isSorted = k === column;
    head.setAttribute("aria-sort", isSorted ? descending ? "descending" : "ascending" : "none");
    head.replaceChildren(button(head.textContent + (isSorted ? descending ? " ↓" : " ↑" : ""), () => onSort([k, isSorted && !descending])));
  });
  return view;
}
function bar(parts, label) {  // [[value, color index]], fractions of one
  const svg = s("svg", {viewBox: "0 0 100 8", preserveAspectRatio: "none"});
  let x = 0;
  for (const [value, color] of parts) {
    svg.append(s("rect", {x, width: Math.max(0, value) * 100, height: 8, fill: "var(" + colors[color] + ")"}));
    x += Math.max(0, value) * 100;
  }
  return h("div", {class: "bar", role: "img", "aria-label": label}, svg);
}
const legend = names => h("ul", {class: "legend"}, names.map(([name, color, about]) => h("li", {title: about}, h("span", {class: "swatch c" + color}), name)));
const say = text => { document.getElementById("announcer").textContent = text; };
// A file of the browser, with its content.
function download(name, type, content) {
  const link = h("a", {href: URL.createObjectURL(new Blob([content], {type})), download: name});
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}
const state = (word, health) => h("span", {class: "state " + ({good: "good", attention: "warn", bad: "bad"}[health] || stateClass(word))}, word);

// ---- The view: what of the curves is shown, and how. It is in the address, so that a link leads to a moment.

const kAxes = [["step", "step"], ["epoch", "epoch"], ["wall", "wall time"], ["trained", "training time"]];
const kParts = [[1, "all steps"], [.5, "last half"], [.2, "last fifth"], [.05, "last twentieth"]];
const kSmoothing = [[0, "not smoothed"], [.6, "smoothed"], [.9, "smoothed more"], [.98, "smoothed most"]];
function viewOf(parameters) {
  const among = (list, value) => list.some(([v]) => String(v) === value) ? value : String(list[0][0]);
  const from = Number(parameters.get("from") ?? NaN), to = Number(parameters.get("to") ?? NaN), log = parameters.get("log");
  return {x: among(kAxes, parameters.get("x")), part: Number(among(kParts, parameters.get("part"))), smooth: Number(among(kSmoothing, parameters.get("smooth"))),
    range: from < to ? [from, to] : null, metric: parameters.get("metric"), log: log === null ? null : log === "1"};
}
function writeView(parameters, view) {
  const put = (key, value, usual) => value === null || value === undefined || String(value) === String(usual) ? parameters.delete(key) : parameters.set(key, value);
  put("x", view.x, "step"), put("part", view.part, 1), put("smooth", view.smooth, 0), put("metric", view.metric), put("log", view.log === null ? null : Number(view.log));
  put("from", view.range && Math.round(view.range[0])), put("to", view.range && Math.round(view.range[1]));
}

// ---- Curves

// The value at `x` of the line through the points; xs ascend.
function interpolate(xs, ys, x) {
  let low = 0, high = xs.length - 1;
  if (high < 0) return x;
  if (x <= xs[0]) return high > 0 && xs[0] > 0 ? ys[0] * x / xs[0] : ys[0];
  if (x >= xs[high]) return ys[high];
  while (high - low > 1) { const middle = low + high >> 1; if (xs[middle] <= x) low = middle; else high = middle; }
  const width = xs[high] - xs[low];
  return width > 0 ? ys[low] + (ys[high] - ys[low]) * (x - xs[low]) / width : ys[high];
}
// Records have whole epochs: a part of one is that of its steps.
function fractionalEpochs({step, epoch}) {
  const starts = [];  // [epoch, first step]
  for (let i = 0; i < step.length; ++i) if (!starts.length || epoch[i] > starts[starts.length - 1][0]) starts.push([epoch[i], i === 0 ? 0 : step[i]]);
  const lengths = starts.map(([e, at], k) => k + 1 < starts.length ? (starts[k + 1][1] - at) / (starts[k + 1][0] - e) : NaN);
  if (lengths.length > 1) lengths[lengths.length - 1] = lengths[lengths.length - 2];
  let k = 0;
  return step.map((at, i) => { while (k + 1 < starts.length && starts[k + 1][0] <= epoch[i]) ++k; return isNumber(lengths[k]) ? starts[k][0] + Math.min(1, (at - starts[k][1]) / lengths[k]) : epoch[i]; });
}
// {of: the x of a step, step: that of an x, title, label: of a tick}
function axisOf(curves, kind) {
  const {columns} = curves, steps = columns.step;
  let values = null, title = "step";
  if (kind === "epoch" && columns.epoch && columns.epoch[columns.epoch.length - 1] > 0) [values, title] = [fractionalEpochs(columns), "epoch"];
  const seconds = {wall: columns.seconds, trained: columns.trained_seconds}[kind], last = seconds && seconds[seconds.length - 1];
  if (last > 0) {
    const [unit, size] = last < 300 ? ["s", 1] : last < 3 * 3600 ? ["min", 60] : last < 3 * 86400 ? ["h", 3600] : ["d", 86400];
    [values, title] = [seconds.map(one => one / size), `${kind === "wall" ? "wall" : "training"} time (${unit})`];
  }
  if (!values) return {of: x => x, step: x => x, title: "step", label: count};
  return {of: x => interpolate(steps, values, x), step: x => interpolate(values, steps, x), title, label: tick};
}
// Row numbers [begin, end) of the view.
function visible(columns, {part, range}) {
  const steps = columns.step, n = steps.length;
  if (n === 0 || (part >= 1 && !range)) return [0, n];
  const [from, to] = range || [steps[n - 1] - (steps[n - 1] - steps[0]) * part, Infinity];
  let begin = 0, end = n;
  while (begin < n - 2 && steps[begin] < from) ++begin;
  while (end > begin + 2 && steps[end - 1] > to) --end;
  return [begin, end];
}
// Before these rows, records are missing: the distance is much larger than those around it.
function gapsOf(steps) {
  const gaps = [];
  for (let i = 1; i < steps.length; ++i) {
    const before = i > 1 ? steps[i - 1] - steps[i - 2] : steps[0], after = i + 1 < steps.length ? steps[i + 1] - steps[i] : before;
    if (steps[i] - steps[i - 1] > 5 * Math.max(before, after, 1)) gaps.push(i);
  }
  return gaps;
}
// Averages of `column` in at most kBuckets groups of rows, with their minimum and maximum. null in a gap.
function decimate(columns, column, [begin, end], of = x => x, lows = column, highs = column) {
  const xs = columns.step, ys = columns[column] || [], ls = columns[lows] || [], hs = columns[highs] || [], gaps = new Set(gapsOf(xs));
  const per = Math.max(1, Math.ceil((end - begin) / kBuckets));
  const line = [], low = [], high = [];
  for (let i = begin; i < end; i += per) {
    const stop = Math.min(end, i + per);
    let sum = 0, n = 0, min = Infinity, max = -Infinity;
    for (let k = i; k < stop; ++k) {
      if (gaps.has(k) && k > begin) for (const points of [line, low, high]) points.push({x: of(xs[k - 1]), y: null, gap: true});
      const y = ys[k];
      if (y === null || y === undefined) continue;
      sum += y; ++n;
      if (ls[k] !== null && ls[k] < min) min = ls[k];
      if (hs[k] !== null && hs[k] > max) max = hs[k];
    }
    const x = of(xs[stop - 1]);
    line.push({x, y: n ? sum / n : null});
    low.push({x, y: n ? min : null});
    high.push({x, y: n ? max : null});
  }
  return {line, low, high, merged: per > 1 || lows !== column};
}
// As TensorBoard: an exponential mean without the bias of its start.
function smoothed(points, weight) {
  let mean = 0, n = 0;
  return points.map(p => {
    if (!isNumber(p.y)) return p;
    mean = mean * weight + p.y * (1 - weight);
    return {x: p.x, y: mean / (1 - weight ** ++n)};
  });
}
const style = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const translucent = (color, alpha) => color + Math.round(alpha * 255).toString(16).padStart(2, "0");

const isDark = matchMedia("(prefers-color-scheme: dark)");
// The color of run `i` of `n`: after the palette, around the color wheel.
function runColor(i, n) {
  if (n <= colors.length) return style(colors[i]);
  const [light, wide] = isDark.matches ? [.68, .26] : [.42, .34];
  const part = k => light - wide * Math.max(-1, Math.min((k + 12 * i / n) % 12 - 3, 9 - (k + 12 * i / n) % 12, 1));
  return "#" + [0, 8, 4].map(k => Math.round(255 * part(k)).toString(16).padStart(2, "0")).join("");
}
// As the terminal's plot: the largest value is more than a hundred times the smallest.
function spansDecades(values) {
  let low = Infinity, high = -Infinity;
  for (const y of values) if (isNumber(y)) { low = Math.min(low, y); high = Math.max(high, y); }
  return low > 0 && high / low > 100;
}
const cell = value => /[",\n]/.test(value) ? '"' + value.replaceAll('"', '""') + '"' : value;

class Plot {
  constructor(title, options = {}) {
    this.title = title;
    this.options = options;  // zero: the y axis starts at 0; unit: of y; text: of a value, at the axis too; onRange([from, to] in x, or null)
    this.format = options.text || format;
    this.canvas = h("canvas", {role: "img", tabindex: 0, "aria-label": title});
    this.canvas.addEventListener("keydown", event => this.onKey(event));
    this.selection = h("div", {class: "selection", hidden: true});
    this.element = h("div", {class: "plot"}, this.canvas, this.selection);
    this.sets = [];
    this.marks = [];
    this.log = null;  // chosen by spansDecades()
    this.axis = {title: "step", label: count};
    if (options.onRange) this.listen();
  }
  // A drag selects a range, a double click all.
  listen() {
    let from = null;
    const x = event => { const {left, right} = this.chart.chartArea; return Math.max(left, Math.min(right, event.offsetX)); };
    this.canvas.addEventListener("pointerdown", event => { if (event.pointerType === "mouse" && event.button === 0 && this.chart) { from = x(event); this.canvas.setPointerCapture(event.pointerId); } });
    this.canvas.addEventListener("pointermove", event => {
      if (from === null) return;
      const {top, bottom} = this.chart.chartArea, to = x(event);
      Object.assign(this.selection.style, {left: Math.min(from, to) + "px", width: Math.abs(to - from) + "px", top: top + "px", height: bottom - top + "px"});
      this.selection.hidden = Math.abs(to - from) < 6;
    });
    const end = event => {
      if (from === null) return;
      const range = [from, x(event)].sort((a, b) => a - b).map(at => this.chart.scales.x.getValueForPixel(at)), isClick = this.selection.hidden;
      from = null;
      this.selection.hidden = true;
      if (!isClick) this.options.onRange(range);
    };
    this.canvas.addEventListener("pointerup", end);
    this.canvas.addEventListener("pointercancel", () => { from = null; this.selection.hidden = true; });
    this.canvas.addEventListener("dblclick", () => this.options.onRange(null));
  }
  // A button that changes between a linear and a logarithmic axis.
  logButton(redraw) {
    this.button = button("log scale", () => { this.log = !this.isLog; redraw(); }, {"aria-pressed": "false"});
    return this.button;
  }
  // Buttons that save the points and the picture.
  files(name) {
    const file = ending => `${name()} ${this.title}`.replace(/[^\w.-]+/g, "-") + ending;
    return h("span", {class: "files"}, button("CSV", () => download(file(".csv"), "text/csv", this.toCsv()), {"aria-label": `Save the points of ${this.title} as CSV`}),
      button("SVG", () => download(file(".svg"), "image/svg+xml", this.toSvg()), {"aria-label": `Save ${this.title} as SVG`}));
  }
  // sets: [{name, color, points, marks, low, high, area, faint, all}]; a color is an index or text; all: the points that are not averaged
  draw(sets, axis = this.axis, marks = []) {
    const start = performance.now();
    this.sets = sets.filter(set => set.points.length > 0);
    this.axis = axis;
    this.marks = marks;
    const datasets = [];
    for (const set of this.sets) {
      const color = typeof set.color === "string" ? set.color : style(colors[set.color % colors.length]);
      const common = {parsing: false, normalized: true, borderColor: color, pointBackgroundColor: color, spanGaps: false};
      if (set.low) {
        datasets.push({...common, label: "", data: set.low, borderWidth: 0, pointRadius: 0, hidden: false, isBand: true});
        datasets.push({...common, label: "", data: set.high, borderWidth: 0, pointRadius: 0, fill: "-1", backgroundColor: translucent(color, .16), isBand: true});
      }
      if (set.faint) datasets.push({...common, label: "", data: set.faint, borderColor: translucent(color, .3), borderWidth: 1, pointRadius: 0, isBand: true});
      datasets.push({...common, label: set.name, data: set.points, borderWidth: set.marks ? 1.5 : 1.6,
        pointRadius: set.marks || set.points.length === 1 ? 2.5 : 0, pointHoverRadius: 4, tension: 0,
        fill: set.area ? (set.area === 1 ? "origin" : "-1") : false, backgroundColor: translucent(color, set.area ? .3 : 1), order: set.marks ? 0 : 1});
    }
    const spans = spansDecades(this.sets.flatMap(set => set.points.map(p => p.y)));
    this.isLog = this.log ?? (!this.options.zero && spans);
    if (this.button) this.button.setAttribute("aria-pressed", this.isLog);
    const soft = style("--soft"), line = style("--line");
    const base = {grid: {color: line, drawBorder: false, drawTicks: false}, ticks: {color: soft, padding: 6, maxTicksLimit: innerWidth < 500 ? 4 : 6, maxRotation: 0, font: {size: 11}}};
    const title = words => ({display: !!words, text: words, color: soft, font: {size: 11}, padding: 0});
    const config = {
      type: "line", data: {datasets},
      plugins: [{id: "marks", afterDatasetsDraw: chart => this.drawMarks(chart)}],
      options: {
        animation: false, responsive: true, maintainAspectRatio: false, normalized: true, events: ["mousemove", "mouseout", "touchstart", "touchmove"],
        interaction: {mode: "nearest", axis: "x", intersect: false},
        layout: {padding: {top: 4, right: 6}},
        scales: {
          x: {...base, type: "linear", grid: {...base.grid, display: false}, ticks: {...base.ticks, callback: x => axis.label(x)}, title: title(axis.title), bounds: "data", min: this.fromZero ? 0 : undefined},
          y: {...base, type: this.isLog ? "logarithmic" : "linear", beginAtZero: !!this.options.zero, title: title(this.unit ?? this.options.unit),
            ticks: {...base.ticks, callback: x => this.isLog && spans && !/^[125]/.test(x.toExponential()) ? "" : (this.options.text || tick)(x)}}},
        plugins: {legend: {display: false}, tooltip: {
          filter: item => !item.dataset.isBand, backgroundColor: style("--ink"), titleColor: style("--card"), bodyColor: style("--card"), padding: 9, displayColors: this.sets.length > 1, boxWidth: 8, boxHeight: 8, itemSort: (a, b) => b.parsed.y - a.parsed.y,
          callbacks: {title: items => items.length ? axis.title + " " + axis.label(items[0].parsed.x) : "", label: item => item.dataset.label + "  " + this.format(item.parsed.y)}}}}};
    if (this.chart) {
      this.chart.data = config.data;
      this.chart.options = config.options;
      this.chart.update("none");
    } else {
      this.chart = new Chart(this.canvas, config);
    }
    this.canvas.setAttribute("aria-label", this.describe());
    drawMs += performance.now() - start;
  }
  // Vertical lines where something happened; the legend says what.
  drawMarks({ctx, chartArea: {left, right, top, bottom}, scales}) {
    for (const mark of this.marks) {
      const x = scales.x.getPixelForValue(mark.x);
      if (!(x >= left - 1 && x <= right + 1)) continue;
      ctx.save();
      ctx.strokeStyle = ctx.fillStyle = style("--" + mark.kind);
      ctx.setLineDash([3, 3]);
      ctx.beginPath(); ctx.moveTo(x, top); ctx.lineTo(x, bottom); ctx.stroke();
      ctx.beginPath(); ctx.moveTo(x - 4, top); ctx.lineTo(x + 4, top); ctx.lineTo(x, top + 6); ctx.fill();
      ctx.restore();
    }
  }
  describe() {
    const parts = this.sets.map(({name, points}) => {
      const known = points.filter(p => isNumber(p.y));
      if (!known.length) return name + ": no value";
      const first = known[0], last = known[known.length - 1];
      return `${name}: ${this.format(first.y)} at ${this.axis.title} ${this.axis.label(first.x)}, ${this.format(last.y)} at ${this.axis.title} ${this.axis.label(last.x)}`;
    });
    return this.title + ". " + (parts.join("; ") || "No data yet.") + ". " + this.marks.map(mark => mark.text + ". ").join("") + "Arrow keys read single points; up and down choose the curve.";
  }
  onKey(event) {
    const move = {ArrowLeft: -1, ArrowRight: 1, Home: -1e9, End: 1e9, ArrowUp: 0, ArrowDown: 0}[event.key];
    if (move === undefined || !this.chart || !this.sets.length) return;
    event.preventDefault();
    const curves = this.chart.data.datasets.map((_, i) => i).filter(i => !this.chart.data.datasets[i].isBand);
    const turn = {ArrowUp: -1, ArrowDown: 1}[event.key] || 0, before = this.chart.data.datasets[curves[this.curve || 0] ?? curves[0]].data[this.at];
    this.curve = ((this.curve || 0) % curves.length + turn + curves.length) % curves.length;
    const {data, label} = this.chart.data.datasets[curves[this.curve]];
    if (turn && before) this.at = data.reduce((best, p, i) => Math.abs(p.x - before.x) < Math.abs(data[best].x - before.x) ? i : best, 0);
    this.at = Math.max(0, Math.min(data.length - 1, (this.at === undefined ? data.length : this.at) + move * (event.shiftKey ? 10 : 1)));
    const active = [{datasetIndex: curves[this.curve], index: this.at}];
    this.chart.setActiveElements(active);
    this.chart.tooltip.setActiveElements(active, {x: 0, y: 0});
    this.chart.update("none");
    say(`${label}, ${this.axis.title} ${this.axis.label(data[this.at].x)}: ${this.format(data[this.at].y)}`);
  }
  // A column for each curve.
  toCsv() {
    const rows = new Map();
    this.sets.forEach(({points, all}, column) => {
      for (const {x, y, gap} of all || points) {
        if (gap) continue;
        if (!rows.has(x)) rows.set(x, this.sets.map(() => ""));
        rows.get(x)[column] = isNumber(y) ? String(y) : "";
      }
    });
    return [[this.axis.title, ...this.sets.map(set => set.name)], ...[...rows].sort((a, b) => a[0] - b[0]).map(([x, ys]) => [String(x), ...ys])].map(row => row.map(cell).join(",") + "\n").join("");
  }
  // The picture of the canvas, from the same scales.
  toSvg() {
    const {width, height, chartArea: {left, right, top, bottom}, scales: {x, y}, data} = this.chart, [soft, ink, line] = ["--soft", "--ink", "--line"].map(style);
    const at = p => x.getPixelForValue(p.x).toFixed(1) + " " + y.getPixelForValue(p.y).toFixed(1);
    const path = points => { let pen = "M"; return points.map(p => { if (!isNumber(p.y)) { pen = "M"; return ""; } const part = pen + at(p); pen = "L"; return part; }).join(""); };
    const label = (px, py, anchor, words, props) => s("text", {x: px, y: py, "text-anchor": anchor, fill: soft, ...props}, words);
    const svg = s("svg", {xmlns: kSvg, width, height: height + 18 * this.sets.length, viewBox: `0 0 ${width} ${height + 18 * this.sets.length}`, "font-family": "sans-serif", "font-size": 11},
      s("title", null, this.title), s("rect", {width: "100%", height: "100%", fill: style("--card")}), s("clipPath", {id: "area"}, s("rect", {x: left, y: top, width: right - left, height: bottom - top})),
      y.ticks.filter(t => t.label).map(t => [s("path", {d: `M${left} ${y.getPixelForValue(t.value)}H${right}`, stroke: line}), label(left - 6, y.getPixelForValue(t.value) + 4, "end", t.label)]),
      x.ticks.map(t => label(x.getPixelForValue(t.value), bottom + 16, "middle", t.label)), label((left + right) / 2, bottom + 30, "middle", this.axis.title),
      this.unit ?? this.options.unit ? label(12, (top + bottom) / 2, "middle", this.unit ?? this.options.unit, {transform: `rotate(-90 12 ${(top + bottom) / 2})`}) : []);
    const area = s("g", {"clip-path": "url(#area)"});
    data.datasets.forEach((set, i) => {
      const below = set.fill === "-1" ? data.datasets[i - 1].data : set.fill === "origin" ? set.data.map(p => ({x: p.x, y: y.min})) : null;
      if (below) area.append(s("path", {d: path(set.data.filter(p => isNumber(p.y))) + path([...below].reverse().filter(p => isNumber(p.y))).replace("M", "L") + "Z", fill: set.backgroundColor, stroke: "none"}));
      if (set.borderWidth) area.append(s("path", {d: path(set.data), fill: "none", stroke: set.borderColor, "stroke-width": set.borderWidth}));
      if (set.pointRadius) area.append(...set.data.filter(p => isNumber(p.y)).map(p => s("circle", {cx: x.getPixelForValue(p.x), cy: y.getPixelForValue(p.y), r: set.pointRadius, fill: set.borderColor})));
    });
    for (const mark of this.marks) area.append(s("path", {d: `M${x.getPixelForValue(mark.x)} ${top}V${bottom}`, stroke: style("--" + mark.kind), "stroke-dasharray": 3}, s("title", null, mark.text)));
    const named = data.datasets.filter(set => !set.isBand);
    svg.append(area, ...named.map((set, i) => s("g", null, s("rect", {x: left, y: height + 18 * i, width: 12, height: 3, fill: set.borderColor}), label(left + 18, height + 18 * i + 5, "start", set.label, {fill: ink}))));
    return new XMLSerializer().serializeToString(svg);
  }
}
let drawMs = 0;
const kMaxCompared = 200;
const kReadTogether = 8;  // of the compared runs
// ---- Data of a run

const get = async (path, name, more = {}) => {
  const answer = await fetch(path + "?" + new URLSearchParams({...(name ? {run: name} : {}), ...more}));
  if (!answer.ok) throw new Error(path + ": " + answer.status);
  return answer.json();
};
function metricsOf(run) {  // [["val", "loss"], …] of all evaluations
  const seen = new Map();
  for (const one of run.evaluations)
    for (const [dataset, values] of Object.entries(one.datasets))
      for (const metric of Object.keys(values)) if (metric !== "num_samples") seen.set(dataset + "/" + metric, [dataset, metric]);
  return [...seen.values()];
}
const pointsOf = (run, dataset, metric, from = 0) => run.evaluations.filter(e => e.step >= from && e.datasets[dataset] && isNumber(e.datasets[dataset][metric]))
  .map(e => ({x: e.step, y: e.datasets[dataset][metric]}));
// Of the run's table of metrics; a metric can have the name of a property that every object has.
const definitionOf = (run, metric) => run.metrics && Object.hasOwn(run.metrics, metric) ? run.metrics[metric] : null;
// "maximize, fraction: …"
function aboutMetric(run, metric) {
  const one = definitionOf(run, metric);
  if (!one) return "";
  return one.direction + (one.unit ? ", " + one.unit : "") + (one.help ? ": " + one.help.replace(/\]\([^)]*\)/g, "]").replace(/[\[\]`]/g, "") : "");
}
// The best of the values at the steps of the evaluations; null: the direction is not known.
function bestValue(run, dataset, metric) {
  const one = definitionOf(run, metric), values = pointsOf(run, dataset, metric).map(p => p.y);
  return one && values.length ? (one.direction === "maximize" ? Math.max(...values) : Math.min(...values)) : null;
}
const mainMetric = run => run.best ? [run.best.dataset, run.best.metric] : metricsOf(run)[0];
function stateClass(state) {
  if (["training", "running", "finished", "saving", "starting"].includes(state)) return "good";
  if (["paused", "stopping", "stopped", "preempted", "not started", "no answer"].includes(state)) return "warn";
  if (["crashed", "failed", "degraded"].includes(state)) return "bad";
  return "";
}
const isOver = state => ["finished", "stopped", "preempted", "failed", "crashed", "not started"].includes(state);
function settingsOf(text) {  // the resolved configuration as "section.key" -> value
  const path = [], settings = new Map();
  for (const line of text.split("\n")) {
    const match = line.match(/^( *)(- )?([\w.]+):(?: (.*))?$/);
    if (!match) continue;
    const depth = match[1].length / 2;
    path.length = Math.ceil(depth);
    path.push(match[3]);
    if (match[4] !== undefined) settings.set(path.filter(x => x !== undefined).join("."), match[4]);
  }
  return settings;
}

// What the programs and the machine use (shared/base/resource_use.h): a chart for the values of each unit.
const kUseCharts = [["cores", "Processor", "cores"], ["bytes", "Memory", ""], ["bytes/s", "Disk and network", "per second"], ["fraction", "Device", "fraction of the time"]];
// Of the evaluator, in its own records: its processes together.
const kEvaluatorUse = {cores: ["evaluator", "cpu_cores", "worker_cpu_cores"], bytes: ["evaluator", "rss_bytes", "worker_rss_bytes"], "bytes/s": ["evaluator read", "read_bytes_per_second", "worker_read_bytes_per_second"]};

// What happened to a run, from its log and its state: [{step, kind, text}].
function happenings(run, columns) {
  const found = [];
  const add = (step, kind, what) => { if (isNumber(step)) found.push({step, kind, text: `${what} at step ${count(step)}`}); };
  for (const line of run.events || []) {
    const {event, level, fields} = parseLine(line), step = Number(fields.step ?? NaN);
    if (event === "run resumed") add(step, "warn", "restart");
    else if (event === "run rolled back") add(step, "bad", "rollback");
    else if (event === "daemon exited" && fields.state === "failed") add(step, "bad", "failed");
    else if (event === "checkpoint abandoned" && level === "error") add(step, "bad", "checkpoint not written");
    else if (event === "watchdog expired" || event === "group hang detected") add(step, "bad", "hang");
    else if (event === "live setting changed") add(step, "soft", `${text(fields.key)} = ${text(fields.current)}`);
  }
  const last = columns.step[columns.step.length - 1];
  if (["failed", "crashed"].includes(run.state) && !found.some(f => f.text.startsWith("failed") && f.step === run.step)) add(run.step || last, "bad", run.state);
  for (const i of gapsOf(columns.step)) found.push({step: columns.step[i - 1], kind: "warn", text: `no records from step ${count(columns.step[i - 1])} to ${count(columns.step[i])}`});
  return found.filter((f, i) => found.findIndex(g => g.text === f.text) === i).sort((a, b) => a.step - b.step);
}

// ---- The view of one run

class RunPage {
  constructor(bundle, artifact, view = viewOf(new URLSearchParams()), onView = () => {}) {
    this.artifact = artifact;  // name -> URL, or {text}
    this.run = bundle.run;
    this.curves = bundle.curves;
    this.status = bundle.status || null;
    this.view = view;
    this.onView = onView;
    this.build();
  }
  build() {
    const choose = (label, list, key, change = Number) => {
      const select = h("select", {"aria-label": label, onchange: () => this.setView({[key]: change(select.value)})}, list.map(([v, t]) => h("option", {value: v}, t)));
      return select;
    };
    this.range = choose("Steps shown", [...kParts, ["range", "selection"]], "part");
    this.xPick = choose("Horizontal axis", kAxes.map(([v, t]) => [v, "by " + t]), "x", String);
    this.smoothPick = choose("Smoothing", kSmoothing, "smooth");
    this.reset = button("show all", () => this.setView({range: null, part: 1}));
    this.pick = choose("Metric of the evaluation", [], "metric", String);
    const onRange = range => this.setView(range ? {range: range.map(x => this.axis.step(x))} : {range: null, part: 1});
    const zero = {zero: true, onRange};
    this.plots = {loss: new Plot("Loss", {onRange}), metric: new Plot("Metric", {onRange}), lr: new Plot("Learning rate", zero),
      phases: new Plot("Phases of a step in milliseconds", {...zero, unit: "ms"}), speed: new Plot("Samples per second", {...zero, unit: "samples/s"}), grad: new Plot("Gradient norm", zero)};
    const p = this.plots;
    this.lossCard = card("Loss", "two", p.loss.element);
    const log = p.loss.logButton(() => this.setView({log: p.loss.log}));
    this.lossCard.head.append(h("span", {class: "tools"}, this.range, this.reset, this.xPick, this.smoothPick, log));
    this.lossLegend = h("div");
    this.lossCard.append(this.lossLegend);
    this.nowCard = card("Now", "now");
    this.nowBody = h("div");
    this.nowCard.append(this.nowBody);
    this.metricCard = card("Metric", "", p.metric.element);
    this.metricCard.head.append(this.pick);
    this.metricLegend = h("div");
    this.metricCard.append(this.metricLegend);
    this.lrCard = card("Learning rate", "", p.lr.element);
    this.phaseLegend = h("div");
    this.phaseCard = card("Phases of a step", "", p.phases.element, this.phaseLegend);
    this.speedCard = card("Samples per second", "half", p.speed.element);
    this.gradCard = card("Gradient norm", "half", p.grad.element);
    this.useCards = kUseCharts.map(([unit, title, axis]) => {
      const plot = new Plot(title, {...zero, unit: axis, text: unit.startsWith("bytes") ? bytes : null}), legends = h("div"), cardOf = card(title, "", plot.element, legends);
      cardOf.head.append(plot.files(() => this.run.name));
      return {unit, plot, legends, cardOf};
    });
    for (const [cardOf, plot] of [[this.lossCard, p.loss], [this.metricCard, p.metric], [this.lrCard, p.lr], [this.phaseCard, p.phases], [this.speedCard, p.speed], [this.gradCard, p.grad]])
      cardOf.head.append(plot.files(() => this.run.name));
    this.evalCard = card("Evaluations", "half");
    this.checkpointCard = card("Checkpoints", "half");
    this.imageCard = card("Artifacts of the evaluation", "wide");
    this.classCard = card("Classes", "wide");
    this.errorCard = card("Sample errors", "wide");
    this.eventCard = card("Events", "wide");
    this.logCard = card("Log", "wide");
    this.logCard.value.textContent = this.eventCard.value.textContent = "times: " + zone;
    this.configCard = h("section", {class: "card wide"});
    this.header = h("header", {class: "run"});
    this.main = h("main", {id: "main", class: "grid"}, this.lossCard, this.nowCard, this.metricCard, this.lrCard, this.phaseCard, this.speedCard, this.gradCard,
      this.evalCard, this.checkpointCard, this.imageCard, this.classCard, this.errorCard, this.eventCard, this.logCard, this.configCard);
    this.element = h("div", null, this.header, this.main);
    this.logPre = h("pre", {class: "log", tabindex: 0, role: "log", "aria-live": "off", "aria-label": "Last lines of the log"});
    this.logCard.append(this.logPre);
  }
  setView(changes) {
    Object.assign(this.view, "part" in changes && !("range" in changes) ? {range: null} : {}, changes);
    if (!isNumber(this.view.part)) this.view.part = 1;
    this.onView(this.view);
    this.drawCurves();
  }
  show() { this.drawHeader(); this.drawNow(); this.drawRun(); this.drawCurves(); this.drawLog(this.run.log); }
  // Calls `draw`; if it fails, the card has the reason.
  guard(cardOf, draw) {
    attempt(draw, reason => {
      cardOf.hidden = false;
      cardOf.replaceChildren(...(cardOf.head ? [cardOf.head] : []), h("p", {class: "empty"}, reason));
    });
  }
  fill(cardOf, children) { this.guard(cardOf, () => cardOf.replaceChildren(...(cardOf.head ? [cardOf.head] : []), ...children())); }

  trainingMetrics() { return Object.keys(this.curves.columns).filter(key => key.startsWith("metric/")).map(key => key.slice("metric/".length)); }
  // Value of the last record, of which the last row of the curves can be the mean with others.
  latest(column) { return (this.curves.last || {})[column] ?? null; }
  get state() { return this.status && !isOver(this.run.state) ? this.status.state : this.run.state; }
  drawHeader() { attempt(() => this.header.replaceChildren(...this.headerParts()), reason => this.header.replaceChildren(h("h1", null, this.run.name), h("p", {class: "notice bad"}, reason))); }
  headerParts() {
    const {run, status, state: word} = this, known = x => status.step_time_ms > 0 ? x : null, isPaused = word === "paused";
    const step = status ? status.step : Math.max(run.step || 0, this.latest("step") || 0), max = status ? status.max_steps : run.max_steps;
    const figures = [["Step", count(step), max ? " of " + count(max) : ""], ["Loss", format(status ? known(status.loss) : this.latest("loss")), ""]];
    if (run.best) figures.push(["Best " + run.best.dataset + " " + words(run.best.metric), format(run.best.value), " at step " + count(run.best.step), aboutMetric(run, run.best.metric)]);
    for (const metric of this.trainingMetrics().slice(0, 4)) figures.push(["Training " + words(metric), format(this.latest("metric/" + metric)), ""]);
    figures.push(["Samples/s", isPaused ? "–" : rate(status ? known(status.samples_per_second) : this.latest("samples_per_second")), ""]);
    if (status && status.eta_seconds > 0 && !isOver(word) && !isPaused) figures.push(["Remaining", "about " + estimate(status.eta_seconds), ""]);
    figures.push(["Training time", duration(this.latest("trained_seconds")), "", "without pauses and restarts; wall time " + duration(this.latest("seconds"))]);
    if (run.started) figures.push(["Started", when(run.started), " " + zone]);
    if (run.since && isOver(word)) figures.push([word[0].toUpperCase() + word.slice(1), when(run.since), " " + age(run.since)]);
    document.title = `${run.name} · ${word}` + (max && !isOver(word) ? ` ${Math.floor(100 * step / max)} %` : "");
    const notice = (bad, ...parts) => h("p", {class: "notice" + (bad ? " bad" : ""), role: bad ? "alert" : null}, ...parts);
    const evaluator = run.evaluator || {}, isBroken = ["failed", "crashed"].includes(evaluator.state);
    const lastRecord = this.latest("step"), missing = step - lastRecord, isUnwritten = status && word === "degraded" && lastRecord > 0 && missing > 0;
    return [
      h("div", {class: "title"}, h("h1", null, run.name), h("span", {class: "state " + stateClass(word) + (isOver(word) ? "" : " live")}, word),
        h("span", {class: "spacer"}), h("span", {class: "where"}, status && status.device ? "on " + status.device + " · " : "", run.run_dir)),
      max ? h("progress", {max: 1, value: Math.min(1, step / max), "aria-label": `Step ${step} of ${max}`}) : h("p"),
      h("dl", {class: "figures"}, figures.map(([name, value, more, about]) => h("div", about ? {title: about} : null, h("dt", null, name), h("dd", null, value, h("small", null, more))))),
      ...(run.reason && isOver(word) ? [notice(stateClass(word) === "bad", [word, run.since && age(run.since)].filter(part => part && part !== "–").join(" ") + ": " + run.reason)] : []),
      ...(word === "degraded" ? [notice(true, `degraded: ${status.checkpoint.last_error}; ${count(Math.max(0, step - status.checkpoint.last_saved_step))} steps since the last checkpoint`)] : []),
      ...(isUnwritten ? [notice(true, `records are not written since step ${count(lastRecord)}: the curves end there`)] : []),
      ...(isPaused ? [notice(false, "paused", ...(run.since ? [" since ", when(run.since), ` ${zone} (${age(run.since)})`] : []), "; next: stokerctl resume")] : []),
      ...(isBroken && !(isOver(word) && (run.reason || "").includes("evaluator")) ? [notice(true, `the evaluator has ${evaluator.state}: ${evaluator.reason}`, evaluator.steps_behind > 0 ? `; ${count(evaluator.steps_behind)} steps are not evaluated` : "", "; next: start stoker-eval again")] : []),
      ...(run.next && isOver(word) ? [notice(false, "next: " + run.next)] : []),
      ...(run.last_start ? [notice(true, "a later start ended before training (", when(run.last_start.time), ` ${zone}, exit code ${run.last_start.exit_code}): ${run.last_start.reason}`)] : []),
      ...(status && status.waiting_for ? [notice(false, "waiting for " + status.waiting_for)] : []),
      ...(this.unreadable ? [notice(true, this.unreadable)] : []),
      ...(this.offline ? [notice(true, `no connection; the values are from ${this.offline} ${zone}`)] : [])];
  }
  drawNow() {
    const {status} = this;
    if (!status) {
      this.nowCard.hidden = true;
      this.lossCard.className = "card wide";
      return;
    }
    this.nowBody.replaceChildren(...attempt(() => this.nowRows(status), reason => [h("p", {class: "empty"}, reason)]));
  }
  nowRows(status) {
    const {feed, checkpoint, evaluator} = status, use = status.resources || {}, isGroup = status.group && status.group.world_size > 1;
    const row = (name, value, ...more) => h("div", null, h("div", {class: "row"}, h("span", null, name), h("b", null, value)), ...more);
    const note = (...parts) => parts.some(Boolean) ? h("div", {class: "note"}, parts) : null;
    // Parts of a bar, with their colors: the legend and the label have the same words.
    const parts = (list, size, value) => {
      const shown = list.filter(([, x]) => x > 0);
      return [bar(list.map(([, x, c]) => [(x || 0) / (size || 1), c]), shown.map(([name, x]) => `${name} ${value(x)}`).join(", ")), legend(shown.map(([name, x, c]) => [`${name} ${value(x)}`, c]))];
    };
    const wait = feed.data_wait_ms || 0, exchange = isGroup ? status.group.exchange_ms || 0 : 0;
    const phases = [["compute", Math.max(0, status.step_time_ms - wait - exchange), 0], ["data wait", wait, 1], ...(isGroup ? [["exchange", exchange, 3]] : [])];
    const activities = [["reading", feed.workers_reading, 0], ["decoding", feed.workers_decoding, 1], ["transforming", feed.workers_transforming, 2], ["waiting", feed.workers_waiting, 3]];
    const lag = checkpoint.last_saved_step - evaluator.last_evaluated_step, unsaved = Math.max(0, status.step - checkpoint.last_saved_step);
    const newest = (this.run.checkpoints || []).find(c => c.step === checkpoint.last_saved_step);
    const failures = [[feed.sample_errors, "sample errors"], [feed.worker_crashes, "worker crashes"], [feed.worker_timeouts, "timeouts"], [feed.requeued_batches, "batches requeued"], [status.skipped_steps, "steps skipped"], [status.rollbacks, "rollbacks"]]
      .filter(([n]) => n > 0).map(([n, what]) => count(n) + " " + what);
    const isPaused = status.state === "paused";
    return [
      ...(!(status.step_time_ms > 0) ? [row("Step", "–")] : [row(isPaused ? "Step (before the pause)" : "Step", milliseconds(status.step_time_ms) + " ms", ...parts(phases, status.step_time_ms, x => milliseconds(x) + " ms"),
        note(status.device_time_ms > 0 ? `device ${milliseconds(status.device_time_ms)} ms` : ""))]),
      row("Ring", `${feed.ready_batches} of ${feed.queue_capacity} batches ready`, bar([[feed.queue_capacity ? feed.ready_batches / feed.queue_capacity : 0, 2]], "ring occupancy")),
      row("Workers", count(feed.workers), ...parts(activities.map(([name, n, c]) => [name, n >= .05 ? n : 0, c]), Math.max(1, feed.workers), x => x.toFixed(1)), note(feed.external_producers ? `${feed.external_producers} external producers` : "")),
      ...this.ranks(row, note),
      row("Memory", bytes(use.rss_bytes), note("peak " + bytes(use.peak_rss_bytes) + (use.worker_rss_bytes ? "; workers " + bytes(use.worker_rss_bytes) : "") + (use.device_reserved_bytes ? `; device ${bytes(use.device_allocated_bytes)} of ${bytes(use.device_reserved_bytes)} reserved` : ""))),
      ...(isNumber(use.cpu_cores) ? [row("Processor", rate(use.cpu_cores) + " cores", note([isNumber(use.worker_cpu_cores) && "workers " + rate(use.worker_cpu_cores), isNumber(use.machine_cpu_cores) && "the whole machine " + rate(use.machine_cpu_cores)].filter(Boolean).join("; ")))] : []),
      row("Checkpoint", checkpoint.saved_total || checkpoint.last_saved_step ? "step " + count(checkpoint.last_saved_step) : "none yet",
        note((checkpoint.is_saving ? "saving; " : "") + (unsaved ? `${count(unsaved)} steps${newest ? ", " + age(newest.created_at) : ""}; ` : "") + `stall ${milliseconds(checkpoint.stall_ms)} ms` + (checkpoint.failed_total ? `; ${checkpoint.failed_total} failed: ${checkpoint.last_error}` : ""))),
      row("Evaluator", words(evaluator.state), note((evaluator.reason ? evaluator.reason + "; " : "") + (evaluator.last_evaluated_step ? `step ${count(evaluator.last_evaluated_step)}` + (lag > 0 ? `, ${count(lag)} steps behind the newest checkpoint` : ", up to date") : ""))),
      row("Up", duration(status.uptime_seconds), note(failures.join(", ")))];
  }
  // The ranks of a group, the time of each against the slowest.
  ranks(row, note) {
    const {world_size: size, restart_count: restarts, ranks} = this.status.group || {};
    if (!(size > 1)) return [];
    const times = ranks.map(r => r.compute_ms), slowest = times.indexOf(Math.max(...times)), max = times[slowest] || 1;
    const median = [...times].sort((a, b) => a - b)[Math.floor(times.length / 2)];
    const others = times.length === 2 ? `the other ${milliseconds(times[1 - slowest])}` : `median ${milliseconds(median)}`;
    const said = ranks.length ? `slowest: rank ${slowest}, ${milliseconds(max)} ms/step (${others}), data wait ${milliseconds(ranks[slowest].data_wait_ms)} ms` : "";
    const bars = ranks.length > 16 ? [] : ranks.map((r, i) => h("div", {class: "rank"}, h("span", null, String(i)),
      bar([[(r.compute_ms - r.data_wait_ms) / max, 0], [r.data_wait_ms / max, 1]], `rank ${i}: ${milliseconds(r.compute_ms)} ms, data wait ${milliseconds(r.data_wait_ms)} ms`)));
    return [row("Ranks", count(size), ...bars, note([said, restarts ? count(restarts) + (restarts === 1 ? " restart" : " restarts") : ""].filter(Boolean).join("; ")))];
  }
  drawCurves() { attempt(() => this.drawPlots(), reason => { this.lossCard.value.textContent = reason; }); }
  drawPlots() {
    const {curves, view} = this, {columns} = curves, range = visible(columns, view), [from, to] = [range[0] > 0 ? columns.step[range[0]] : 0, range[1] < columns.step.length ? columns.step[range[1] - 1] : Infinity];
    const axis = this.axis = axisOf(curves, view.x), chosen = mainMetric(this.run), isEmpty = !columns.step.length && !metricsOf(this.run).length;
    this.range.value = view.range ? "range" : String(view.part);
    this.range.lastChild.hidden = this.range.lastChild.disabled = !view.range;
    this.reset.hidden = !view.range && view.part >= 1;
    for (const [k, [name]] of kAxes.entries()) this.xPick.children[k].disabled = name !== "step" && axisOf(curves, name).title === "step";
    this.xPick.value = view.x;
    this.smoothPick.value = String(view.smooth);
    this.plots.loss.log = view.log;
    const marks = this.marks = happenings(this.run, columns).filter(mark => mark.step >= from && mark.step <= to).map(mark => ({...mark, x: axis.of(mark.step)}));
    for (const plot of [...Object.values(this.plots), ...this.useCards.map(each => each.plot)]) plot.fromZero = view.part === 1 && !view.range;
    const all = column => columns.step.slice(...range).map((step, i) => ({x: axis.of(step), y: columns[column][range[0] + i]}));
    const train = (column, name, lows, highs) => {
      const {line, low, high} = decimate(columns, column, range, axis.of, lows, highs);
      return {name, color: 0, points: view.smooth ? smoothed(line, view.smooth) : line, all: all(column), ...(view.smooth ? {faint: line} : lows ? {low, high} : {})};
    };
    const evaluated = (dataset, metric) => pointsOf(this.run, dataset, metric, from).filter(p => p.x <= to).map(p => ({x: axis.of(p.x), y: p.y}));
    const wide = columns.step.length > kBuckets || curves.records_per_row > 1;
    const sets = [wide ? train("loss", "train", "loss_min", "loss_max") : train("loss", "train")];
    const names = [["train" + (view.smooth ? " (smoothed)" : wide ? " (mean, minimum to maximum)" : ""), 0]];
    let color = 1;
    for (const [dataset, metric] of metricsOf(this.run)) {
      if (metric !== "loss") continue;
      sets.push({name: dataset, color, marks: true, points: evaluated(dataset, "loss")});
      names.push([dataset, color++]);
    }
    this.drawOrSay(this.lossCard, this.plots.loss, isEmpty, sets, axis, marks);
    this.lossLegend.replaceChildren(legend(isEmpty ? [] : names), ...(marks.length ? [h("ul", {class: "legend marks"}, marks.slice(-8).map(mark => h("li", null, h("span", {class: mark.kind}, "▼"), mark.text)))] : []));

    const metrics = [...new Set([...metricsOf(this.run).map(([, m]) => m), ...this.trainingMetrics()].filter(m => m !== "loss"))];
    const options = metrics.join();
    if (this.pick.dataset.options !== options) {
      this.pick.dataset.options = options;
      this.pick.replaceChildren(...metrics.map(m => h("option", {value: m, title: aboutMetric(this.run, m)}, words(m))));
    }
    const preferred = [view.metric, chosen && chosen[1], ...this.trainingMetrics()].find(m => metrics.includes(m));
    if (preferred) this.pick.value = preferred;
    this.metricCard.hidden = metrics.length === 0;
    if (metrics.length) {
      const metric = this.pick.value, lines = [], labels = [], one = definitionOf(this.run, metric);
      if (this.trainingMetrics().includes(metric)) {
        lines.push(train("metric/" + metric, "train"));
        labels.push(["train", 0]);
      }
      let next = 1;
      for (const [dataset, name] of metricsOf(this.run)) {
        if (name !== metric) continue;
        lines.push({name: dataset, color: next, marks: true, points: evaluated(dataset, metric)});
        labels.push([dataset, next++]);
      }
      this.plots.metric.unit = one && one.unit ? one.unit : "";
      this.plots.metric.title = words(metric);
      this.drawOrSay(this.metricCard, this.plots.metric, lines.every(line => !line.points.length), lines, axis, marks);
      this.metricLegend.replaceChildren(legend(labels));
      this.metricCard.value.textContent = one ? (one.direction === "maximize" ? "larger" : "smaller") + " is better" : "";
    }
    const single = (plot, column, name, cardOf, said = "") => {
      this.drawOrSay(cardOf, plot, !columns.step.length, [train(column, name)], axis, marks);
      cardOf.value.textContent = columns.step.length ? said : "";
    };
    single(this.plots.lr, "lr", "learning rate", this.lrCard, rate(this.latest("lr")));
    single(this.plots.speed, "samples_per_second", "samples/s", this.speedCard);  // the header has the last one
    single(this.plots.grad, "grad_norm", "gradient norm", this.gradCard, rate(this.latest("grad_norm")));
    this.drawPhases(range, axis, marks);
    for (const chart of this.useCards) this.drawUse(chart, range, axis, marks, step => step >= from && step <= to);
  }
  // Without the values that are always 0; of more than six, those with the highest peaks.
  drawUse({unit, plot, legends, cardOf}, range, axis, marks, isShown) {
    const {run} = this, {columns} = this.curves, lines = [];
    const add = (name, help, points, more) => {
      const peak = points.reduce((most, p) => Math.max(most, p.y ?? 0), 0);
      if (peak > 0) lines.push({name, help, points, peak, ...more});
    };
    for (const {name, unit: its, label, help} of run.resources || []) {
      const column = "resource/" + name;
      if (its === unit && columns[column]) add(label.replace("program", "stokerd"), help, decimate(columns, column, range, axis.of).line.filter(p => isNumber(p.y) || p.gap));
    }
    const [label, ...names] = kEvaluatorUse[unit] || [""];
    add(label, "In an evaluation, with its worker processes", run.evaluations.filter(e => isShown(e.step) && names.some(name => isNumber((e.resources || {})[name])))
      .map(e => ({x: axis.of(e.step), y: names.reduce((sum, name) => sum + (e.resources[name] || 0), 0)})), {marks: true});
    const shown = [...lines].sort((a, b) => b.peak - a.peak).slice(0, colors.length), kept = lines.filter(line => shown.includes(line)).map((line, color) => ({...line, color}));
    if (!kept.length) return cardOf.remove();
    if (!cardOf.parentNode) this.main.insertBefore(cardOf, this.speedCard);
    plot.draw(kept, axis, marks);
    legends.replaceChildren(legend(kept.map(line => [line.name, line.color, line.help])));
  }
  // Without a point there is no chart, whose axes would be invented.
  drawOrSay(cardOf, plot, isEmpty, sets, axis, marks) {
    plot.element.hidden = isEmpty;
    if (!cardOf.waiting) cardOf.append(cardOf.waiting = h("p", {class: "empty"}, "No record yet"));
    cardOf.waiting.hidden = !isEmpty;
    if (!isEmpty) plot.draw(sets, axis, marks);
  }
  drawPhases(range, axis, marks) {
    const {columns} = this.curves, line = column => decimate(columns, column, range, axis.of).line;
    const step = line("step_time_ms"), isGroup = (columns.exchange_ms || []).some(isNumber);
    // From the top: each layer is what is left below it.
    const layers = [["checkpoint", 2, line("stall_ms")], ...(isGroup ? [["exchange", 3, line("exchange_ms")]] : []), ["data wait", 1, line("data_wait_ms")]];
    const sets = [];
    let rest = step;
    for (const [name, color, points] of layers) {
      sets.unshift({name: "and " + name, color, area: 2, points: rest});
      rest = rest.map((p, i) => ({...p, y: p.y === null ? null : Math.max(0, p.y - (points[i].y || 0))}));
    }
    sets.unshift({name: "compute", color: 0, area: 1, points: rest});
    this.drawOrSay(this.phaseCard, this.plots.phases, !columns.step.length, sets, axis, marks);
    this.phaseLegend.replaceChildren(legend(columns.step.length ? [["compute", 0], ["data wait", 1], ...(isGroup ? [["exchange with other ranks", 3]] : []), ["checkpoint", 2]] : []));
    this.phaseCard.value.textContent = columns.step.length ? milliseconds(this.latest("step_time_ms")) + " ms" : "";
  }
  drawRun() {
    const {run} = this;
    this.fill(this.evalCard, () => this.evaluations());
    this.evalCard.value.textContent = run.best ? "best in bold" : "";
    this.fill(this.checkpointCard, () => this.checkpoints());
    this.guard(this.imageCard, () => this.drawImages());
    this.guard(this.classCard, () => this.drawClasses());
    this.errorCard.hidden = !run.sample_errors.length;
    this.fill(this.errorCard, () => this.sampleErrors());
    this.eventCard.hidden = !report || !run.events.length;
    this.fill(this.eventCard, () => report ? [h("pre", {class: "log", tabindex: 0}, run.events.map(logLine))] : []);
    this.fill(this.configCard, () => this.settings());
  }
  evaluations() {
    const {run} = this, names = metricsOf(run).slice(0, 8), evals = [...run.evaluations].reverse();
    if (!evals.length) return [h("p", {class: "empty"}, "No evaluation yet: stoker-eval --run-dir " + run.run_dir)];
    this.evalCard.className = "card " + (names.length > 4 ? "wide" : "half");
    const bests = names.map(([d, m]) => bestValue(run, d, m));
    return [table(["step", ...names.map(([d, m]) => (new Set(names.map(n => n[0])).size > 1 ? d + " " : "") + words(m)), "time"], evals.slice(0, 100).map(e =>
      [count(e.step), ...names.map(([d, m], i) => { const v = (e.datasets[d] || {})[m]; return isNumber(v) && v === bests[i] ? h("td", null, h("b", {title: "best: " + aboutMetric(run, m)}, format(v))) : format(v); }), duration(e.duration_seconds)]), "Evaluations", evals.map(e => run.best && e.step === run.best.step ? {class: "best"} : null)),
      ...(run.unread_evaluations ? [h("p", {class: "empty"}, count(run.unread_evaluations) + " older evaluations are not shown")] : [])];
  }
  checkpoints() {
    const {run} = this, checkpoints = [...run.checkpoints].reverse();
    if (!checkpoints.length) return [h("p", {class: "empty"}, "No checkpoint yet")];
    const valueOf = c => { const e = run.evaluations.find(x => x.manifest_sha256 === c.manifest_sha256), m = mainMetric(run); return e && m ? format((e.datasets[m[0]] || {})[m[1]]) : "–"; };
    return [table(["step", report ? "saved (" + zone + ")" : "saved", "size", mainMetric(run) ? mainMetric(run).map(words).join(" ") : "value"], checkpoints.map(c => [count(c.step), report ? timestamp(c.created_at) : age(c.created_at), bytes(c.bytes), valueOf(c)]),
      "Checkpoints", checkpoints.map(c => run.best && c.manifest_sha256 === run.best.manifest_sha256 ? {class: "best"} : null))];
  }
  sampleErrors() {
    const errors = [...this.run.sample_errors].reverse(), keys = [...new Set(errors.flatMap(Object.keys))].slice(0, 8);
    return errors.length ? [table(keys.map(k => "<" + words(k)), errors.map(e => keys.map(k => h("td", {class: "wrap left"}, text(e[k])))), "Samples that could not be read")] : [];
  }
  settings() {
    const {run} = this, environment = run.environment || {};
    let scale = 1;  // by train.rollback_lr_factor
    try { scale = JSON.parse(environment.live_settings).lr_scale ?? 1; } catch { /* none */ }
    const facts = [environment.stoker_version && `stoker ${environment.stoker_version}, LibTorch ${environment.torch_version}`,
      environment.device && `trained on ${environment.device} with ${environment.num_threads} ${environment.num_threads === "1" ? "thread" : "threads"}`,
      environment.processor, environment.system, environment.data && `data.train: ${environment.data}`].filter(Boolean);
    return [...(facts.length ? [h("p", {class: "where"}, facts.join("; "))] : []),
      ...(scale !== 1 ? [h("p", null, `Rollbacks lowered the learning rate to ${format(scale)} times that of these settings`)] : []),
      ...(run.setting_changes.length ? [h("h3", null, "Changed while the run trained"), table(["step", "<setting", "<previous", "<value", "<time (" + zone + ")"], [...run.setting_changes].reverse().map(c =>
        [count(c.step), ...[c.key, c.previous, c.current, timestamp(c.time)].map(value => h("td", {class: "left"}, text(value)))]), "Changed settings")] : []),
      h("details", null, h("summary", null, "Settings in effect"), h("pre", null, run.config))];
  }
  drawImages() {
    const steps = [...new Set(this.run.artifacts.map(a => a.step))].sort((a, b) => a - b);
    this.imageCard.hidden = !steps.length;
    if (!steps.length) return;
    if (!steps.includes(this.imageStep) || this.followImages !== false) this.imageStep = steps[steps.length - 1];
    const at = steps.indexOf(this.imageStep);
    const key = this.imageStep + ":" + this.run.artifacts.length + steps[steps.length - 1];
    if (this.imageKey === key) return;
    this.imageKey = key;
    const go = to => () => { this.imageStep = steps[to]; this.followImages = to === steps.length - 1; this.drawImages(); };
    const figures = this.run.artifacts.filter(a => a.step === this.imageStep && !a.kind.endsWith(".md") && !(a.kind === "confusion_matrix.png" && this.run.classes && this.run.classes.confusion_matrix.length)).map(a => {
      const caption = h("figcaption", null, `${a.dataset}: ${words(a.kind.replace(/\.\w+$/, ""))}`), source = this.artifact(a.name);
      if (a.kind.endsWith(".png")) return source ? h("figure", null, h("img", {src: source, alt: `${words(a.kind.replace(".png", ""))} of ${a.dataset} at step ${a.step}`}), caption) : null;
      const pre = h("pre");
      Promise.resolve(source).then(async text => { pre.textContent = report ? text : await (await fetch(text)).text(); }).catch(() => {});
      return h("figure", null, pre, caption);
    });
    this.imageCard.head.replaceChildren(this.imageCard.head.firstChild, h("button", {type: "button", disabled: at === 0, "aria-label": "Earlier step", onclick: go(at - 1)}, "‹"),
      h("span", null, "step " + count(this.imageStep)), h("button", {type: "button", disabled: at === steps.length - 1, "aria-label": "Later step", onclick: go(at + 1)}, "›"));
    this.imageCard.replaceChildren(this.imageCard.head, h("div", {class: "images"}, figures));
  }
  drawClasses() {
    const c = this.run.classes;
    this.classCard.hidden = !c;
    if (!c) return;
    const parts = [];
    if (c.confusion_matrix.length) {
      const shade = (n, sum, right) => { const f = sum ? n / sum : 0; return (right ? "m" : "x") + (n === 0 ? 0 : right ? (f > .85 ? 4 : f > .6 ? 3 : f > .3 ? 2 : 1) : f > .2 ? 4 : f > .1 ? 3 : f > .04 ? 2 : 1); };
      parts.push(h("figure", null, h("div", {class: "scroll whole", tabindex: 0, role: "region", "aria-label": "Confusion matrix"}, h("table", {class: "matrix"}, h("caption", {class: "hidden"}, "Confusion matrix: a row for each label, a column for each prediction"),
        h("thead", null, h("tr", null, h("th"), c.classes.map(k => h("th", {scope: "col"}, k.name)))),
        h("tbody", null, c.confusion_matrix.map((row, i) => { const sum = row.reduce((a, b) => a + b, 0); return h("tr", null, h("th", {scope: "row"}, (c.classes[i] || {}).name || i), row.map((n, k) => h("td", {class: shade(n, sum, i === k)}, n || ""))); })))),
        h("figcaption", null, "rows: label, columns: prediction")));
    }
    const worst = [...c.classes].sort((a, b) => a.f1 - b.f1);
    const percent = x => isNumber(x) ? (100 * x).toFixed(1) : "–";
    parts.push(h("div", null, table(["class", "samples", "precision %", "recall %", "F1 %"], worst.map(k => [k.name, count(k.support), percent(k.precision), percent(k.recall), percent(k.f1)]), "Classes, lowest F1 first")));
    this.classCard.value.textContent = `${c.dataset}, step ${count(c.step)}`;
    this.classCard.replaceChildren(this.classCard.head, h("div", {class: "images"}, parts));
  }
  drawLog(lines) {
    this.logCard.hidden = !lines.length;
    this.known = new Set(lines);  // an event can repeat them
    this.logPre.replaceChildren(...lines.map(logLine));
    this.logPre.scrollTop = 1e9;
  }
  addLog(lines) {
    const pre = this.logPre, isAtEnd = pre.scrollTop + pre.clientHeight >= pre.scrollHeight - 30;
    this.logCard.hidden = false;
    lines = lines.filter(line => !this.known.has(line));
    pre.append(...lines.map(logLine));
    while (pre.childElementCount > 400) pre.firstElementChild.remove();
    if (isAtEnd) pre.scrollTop = pre.scrollHeight;
  }
  addRows(rows) {
    const columns = this.curves.columns, last = this.latest("step") || 0;
    for (const key of Object.keys(rows)) columns[key] ||= columns.step.map(() => null);
    for (let i = 0; i < rows.step.length; ++i) {
      if (rows.step[i] <= last) continue;
      for (const key of Object.keys(columns)) columns[key].push(rows[key] ? rows[key][i] : null);
      this.curves.last = Object.fromEntries(Object.keys(rows).map(key => [key, rows[key][i]]));
    }
    return columns.step.length > 32768;  // then the server's averages are read again
  }
}
// {time, level, event, fields} of a line of the log, in text or JSON; the event of another line is empty.
function parseLine(line) {
  const nothing = {time: "", level: "", event: "", fields: {}, rest: text(line)};
  if (typeof line !== "string") return nothing;
  if (line.startsWith("{")) {
    try {
      const {time, level, event, ...fields} = JSON.parse(line);
      if (![time, level, event].every(x => typeof x === "string")) return nothing;
      return {time, level, event, fields, rest: event + " " + Object.entries(fields).map(([k, v]) => k + "=" + (typeof v === "string" && !/\s/.test(v) ? v : JSON.stringify(v))).join(" ")};
    } catch { return nothing; }
  }
  const match = line.match(/^(\S+Z) (\w+) +(.*)$/);
  if (!match) return nothing;
  const fields = {}, [, time, level, rest] = match;
  for (const [, key, quoted, plain] of rest.matchAll(/ ([\w.]+)=(?:"((?:[^"\\]|\\.)*)"|(\S*))/g)) fields[key] = quoted ?? plain;
  return {time, level, event: rest.replace(/ [\w.]+=.*$/, ""), fields, rest};
}
// A line that is not of stoker's log is shown as it is.
function logLine(line) {
  const {time, level, rest} = parseLine(line);
  const kind = level === "warning" ? "warn" : level === "error" ? "bad" : "";
  return h("span", {class: kind}, h("time", {title: time ? time + " (UTC)" : null}, time ? timestamp(time) : ""), ` ${level === "info" ? "" : level.padEnd(8)}${rest}\n`);
}

// ---- Several runs

// Numbers by their value, before text; what is missing last.
function inOrder(a, b) {
  const [x, y] = [a, b].map(v => isNumber(v) ? v : v === "" || isNaN(v ?? NaN) ? null : Number(v));
  if (x !== null && y !== null) return x - y;
  if (x !== null || y !== null) return x !== null ? -1 : 1;
  return String(a ?? "\uffff").localeCompare(String(b ?? "\uffff"), "en", {numeric: true});
}
// The rows in the order of a column; what is missing is last in both directions.
function ordered(rows, [column, descending]) {
  return rows.sort((a, b) => {
    const [x, y] = [a.values[column], b.values[column]];
    return [x, y].some(v => v === undefined || v === null || v === "") ? inOrder(x, y) : inOrder(x, y) * (descending ? -1 : 1);
  });
}
// Whether a text has all words: "lr=0.1 failed".
const hasWords = (text, filter) => (filter ?? "").toLowerCase().split(/\s+/).filter(Boolean).every(word => text.toLowerCase().includes(word));
// A number of the configuration as people write it: 3.0e-04 is 0.0003.
const setting = value => /^-?\d[\d.]*e[-+]\d+$/.test(value ?? "") ? String(Number(Number(value).toPrecision(12))) : value ?? "–";

// Runs in a picture: an axis for each setting that differs and one for the result, a line for each run.
function parallelCoordinates(names, rows, color, resultName, width) {
  const height = 260, top = 34, bottom = 26, axes = [...names, resultName].map((name, k) => {
    const values = [...new Set(rows.map(row => row.values[k]))].filter(v => v !== undefined && v !== null && v !== ""), numbers = values.map(Number);
    const x = (k + .5) / (names.length + 1) * width, isNumeric = values.length > 0 && numbers.every(isNumber);
    const [low, high] = [Math.min(...numbers), Math.max(...numbers)], isLog = isNumeric && low > 0 && high / low > 20, of = isLog ? Math.log : v => v;
    const sorted = values.sort(inOrder), at = v => values.length < 2 ? .5 : isNumeric ? (of(Number(v)) - of(low)) / (of(high) - of(low) || 1) : sorted.indexOf(v) / (sorted.length - 1);
    const shown = isNumeric ? (low === high ? [low] : [low, high]) : sorted.slice(0, 1).concat(sorted.length > 1 ? sorted.slice(-1) : []);
    return {name, x, isLog, shown: shown.map(v => [k === names.length ? format(v) : setting(String(v)), v]), y: v => v === undefined || v === null || v === "" ? null : height - bottom - at(v) * (height - top - bottom)};
  });
  const label = (x, y, words, name = "end") => s("text", {x, y, "text-anchor": "middle", class: name}, words);
  return h("div", {class: "scroll whole", tabindex: 0, role: "region", "aria-label": "Parallel coordinates"}, s("svg", {viewBox: `0 0 ${width} ${height}`, class: "parallel", role: "img", "aria-label": `${rows.length} runs by ${axes.map(a => a.name).join(", ")}`},
    rows.map(row => { const points = axes.map((a, k) => [a.x, a.y(row.values[k])]).filter(([, y]) => y !== null); return s("path", {d: points.map(([x, y], k) => (k ? "L" : "M") + x.toFixed(1) + " " + y.toFixed(1)).join(""), stroke: color(row.i)}, s("title", null, row.name)); }),
    axes.map(a => s("g", null, s("path", {d: `M${a.x} ${top}V${height - bottom}`, class: "axis"}), label(a.x, 14, a.name + (a.isLog ? " (log)" : ""), "name"), a.shown.map(([words, v], k) => label(a.x, k && a.y(v) < height / 2 ? top - 6 : height - 10, words))))));
}

// A table of the runs with what differs, best first, and their curves. `view`: {by, find, x, log}, which the address has.
function comparison(bundles, onOpen, {total = bundles.length, view = {}, onView = () => {}} = {}) {
  const start = performance.now(), settings = bundles.map(b => settingsOf(text(b.run.config)));
  const metricKeys = [...new Set(bundles.flatMap(b => metricsOf(b.run).map(m => m.join("/"))))];
  const differing = [...new Set(settings.flatMap(s => [...s.keys()]))].filter(key => key !== "run.dir" && new Set(settings.map(s => s.get(key))).size > 1);
  const valueOf = differing.length === 1 ? i => settings[i].get(differing[0]) : i => bundles[i].run.name;
  const order = bundles.map((_, i) => i).sort((a, b) => inOrder(valueOf(a), valueOf(b))), places = new Map(order.map((i, place) => [i, place]));
  const color = i => runColor(places.get(i), bundles.length), states = new Map();
  const change = changes => { Object.assign(view, changes); onView(view); draw(); };
  const pick = h("select", {"aria-label": "Compared metric", onchange: () => { sorted = null; change({by: pick.value, log: null}); }}, [["train/loss", "train loss"], ...metricKeys.map(k => [k, words(k.replace("/", " "))])].map(([v, t]) => h("option", {value: v}, t)));
  const xPick = h("select", {"aria-label": "Horizontal axis", onchange: () => change({x: xPick.value, range: null})}, kAxes.map(([v, t]) => h("option", {value: v}, "by " + t)));
  const plot = new Plot("Comparison", {onRange: range => { zoom = range; draw(); }}), axes = bundles.map(() => ({}));
  const axisFor = i => axes[i][view.x || "step"] ??= axisOf(bundles[i].curves, view.x || "step");
  let zoom = null;
  const points = new Map();  // by run and what is shown: 200 runs are drawn often
  const pointsOfPick = i => {
    const key = `${i} ${pick.value} ${view.x}`, b = bundles[i];
    if (!points.has(key)) {
      const {of} = axisFor(i), [dataset, metric] = pick.value.split("/");
      const buckets = bundles.length > 20 ? decimatedTo(b.curves.columns, 100, of) : null;
      points.set(key, pick.value === "train/loss" ? buckets ?? decimate(b.curves.columns, "loss", [0, b.curves.columns.step.length], of).line : pointsOf(b.run, dataset, metric).map(p => ({x: of(p.x), y: p.y})));
    }
    return points.get(key);
  };
  // One evaluation of each run is a column of points: then the training loss says more.
  const hasCurve = key => bundles.some(b => pointsOf(b.run, ...key.split("/")).length > 1);
  const preferred = [view.by, ...bundles.map(b => mainMetric(b.run)).filter(Boolean).map(m => m.join("/")), ...metricKeys].find(key => key && (key === view.by ? [...pick.options].some(o => o.value === key) : hasCurve(key)));
  if (preferred) pick.value = preferred;
  // The best value of a metric whose direction is known, else the last.
  const results = new Map();
  const result = i => {
    const key = `${i} ${pick.value}`;
    if (!results.has(key)) results.set(key, found(bundles[i]));
    return results.get(key);
  };
  const found = b => {
    if (pick.value === "train/loss") return isNumber((b.curves.last || {}).loss) ? {x: b.curves.last.step, y: b.curves.last.loss} : {};
    const [dataset, metric] = pick.value.split("/"), values = pointsOf(b.run, dataset, metric), one = definitionOf(b.run, metric);
    if (!one || !values.length) return values[values.length - 1] || {};
    return values.reduce((best, p) => (one.direction === "maximize" ? p.y > best.y : p.y < best.y) ? p : best);
  };
  const isMaximized = () => bundles.some(b => (definitionOf(b.run, pick.value.split("/")[1]) || {}).direction === "maximize");
  let sorted = null;  // [column, whether the largest is first]; null: the best value first
  const filter = h("input", {type: "search", placeholder: "filter", value: view.find || "", "aria-label": "Filter the runs by name or setting", oninput: () => change({find: filter.value})});
  const body = h("div"), picture = h("div");
  const swatch = fill => s("svg", {class: "swatch", viewBox: "0 0 1 1"}, s("rect", {width: 1, height: 1, fill}));
  const stateOf = i => states.get(bundles[i].run.name) || bundles[i].run;
  const drawTable = shown => {
    const metricColumn = differing.length + 1;
    const titles = ["run", ...differing, words(pick.value.replace("/", " ")), "step", "training time", "<state"];
    const rows = shown.map(i => {
      const {run, curves} = bundles[i], best = result(i);
      return {i, name: run.name, values: [run.name, ...differing.map(key => settings[i].get(key)), best.y, best.x, (curves.last || {}).trained_seconds, stateOf(i).state]};
    });
    const by = sorted || [metricColumn, isMaximized()], width = Math.max(480, picture.clientWidth || 1000);  // before the table changes: no layout for it
    ordered(rows, by);
    body.replaceChildren(sortable(table(titles, rows.map(({i, values}) => values.map((value, k) =>
      k === 0 ? h("td", {class: "left"}, swatch(color(i)), onOpen ? button(value, () => onOpen(value)) : value)
        : k < metricColumn ? h("td", {class: "setting", title: value}, setting(value)) : k === metricColumn ? format(value) : k === metricColumn + 1 ? count(value) : k === metricColumn + 2 ? duration(value)
          : h("td", {class: "left", title: text(stateOf(i).reason)}, state(value, stateOf(i).health)))), "Runs compared"), by, to => { sorted = to; draw(); }));
    pictureCard.hidden = differing.length < 2 || rows.length < 2;
    if (!pictureCard.hidden) picture.replaceChildren(parallelCoordinates(differing.slice(0, 8), rows.map(row => ({...row, values: [...row.values.slice(1, 1 + Math.min(8, differing.length)), row.values[metricColumn]]})), color, titles[metricColumn], width));
    pictureCard.value.textContent = differing.length > 8 ? `the first 8 of ${differing.length} settings` : "";
  };
  const texts = bundles.map(({run}, i) => run.name + " " + [...settings[i]].map(([k, v]) => `${k}=${v} ${k}=${setting(v)}`).join(" "));
  const draw = () => {
    const began = performance.now(), shown = bundles.map((_, i) => i).filter(i => hasWords(texts[i] + " " + stateOf(i).state, view.find || ""));
    drawTable(shown);
    xPick.value = view.x || "step";
    plot.log = view.log ?? null;
    plot.fromZero = !zoom;
    const inZoom = list => zoom ? list.filter(p => p.x >= zoom[0] && p.x <= zoom[1]) : list;
    plot.title = words(pick.value.replace("/", " ")) + " of runs";
    plot.draw(shown.map(i => ({name: bundles[i].run.name, color: color(i), marks: pick.value !== "train/loss", points: inZoom(pointsOfPick(i))})), shown.length ? {...axisFor(shown[0])} : undefined);
    chartCard.value.textContent = shown.length < total ? `${shown.length} of ${total} runs` : "";
    redrawMs = performance.now() - began;
  };
  const tableCard = card("Runs and settings that differ", "wide", body);
  tableCard.head.append(filter);
  const pictureCard = card("Settings and result", "wide", picture);
  const chartCard = card("Comparison", "wide", plot.element);
  chartCard.head.append(pick, xPick, plot.logButton(() => change({log: plot.log})), plot.files(() => "comparison"));
  prepareMs = performance.now() - start;
  return {element: h("div", {class: "grid"}, tableCard, pictureCard, chartCard), draw, setStates: runs => { for (const run of runs) states.set(run.name, run); draw(); }};
}
// At most `size` points, for a picture of many runs.
function decimatedTo(columns, size, of) {
  const {step, loss} = columns, per = Math.max(1, Math.ceil(step.length / size)), points = [];
  for (let i = 0; i < step.length; i += per) {
    let sum = 0, n = 0;
    const stop = Math.min(step.length, i + per);
    for (let k = i; k < stop; ++k) if (isNumber(loss[k])) { sum += loss[k]; ++n; }
    points.push({x: of(step[stop - 1]), y: n ? sum / n : null});
  }
  return points;
}
let redrawMs = 0, prepareMs = 0;

// The list of runs, with a filter and columns that sort. It is drawn again while it is shown, and keeps both.
class RunList {
  constructor(onOpen, onCompare) {
    this.onOpen = onOpen;
    this.onCompare = onCompare;  // ([names], whether they are compared); null: not possible
    this.sorted = [null, false];  // null: as the server sends them, the newest first
    this.filter = h("input", {type: "search", placeholder: "filter", "aria-label": "Filter the list of runs", oninput: () => this.draw()});
    this.all = onCompare && button("compare all", () => onCompare(this.shown.map(run => run.name), true));
    this.none = onCompare && button("compare none", () => onCompare(this.runs.map(run => run.name), false));
    this.body = h("div");
    const list = this.card = card("Runs", "wide", this.body);
    list.head.append(this.filter, ...(onCompare ? [this.all, this.none] : []));
    this.element = h("nav", {class: "grid list", "aria-label": "Runs"}, list);
  }
  show(runs, current, compared) { [this.runs, this.current, this.compared] = [runs, current, compared]; this.draw(); }
  draw() {
    const focused = this.body.contains(document.activeElement) ? [...this.body.querySelectorAll("button, input")].indexOf(document.activeElement) : -1;
    const scroll = this.body.firstChild ? this.body.firstChild.scrollTop : null;
    this.shown = this.runs.filter(run => run && hasWords([run.name, run.state, run.reason].map(text).join(" "), this.filter.value));
    const rows = this.shown.map(run => ({run, values: [Number(!this.compared.has(run.name)), run.name, run.state, run.step, run.loss, (run.best || {}).value, Date.parse(text(run.since)), text(run.reason)]}));
    if (this.sorted[0] !== null) ordered(rows, this.sorted);
    const view = table([this.onCompare ? "compare" : "", "<run", "<state", "step", "loss", "<best", "since", "<reason"], rows.map(({run}) => attempt(() => [
      this.onCompare ? h("input", {type: "checkbox", checked: this.compared.has(run.name), "aria-label": "Compare " + run.name, onchange: e => this.onCompare([run.name], e.target.checked)}) : "",
      h("td", {class: "left"}, button(run.name, () => this.onOpen(run.name))), h("td", {class: "left"}, state(run.state, run.health)),
      count(run.step) + (run.max_steps && !isOver(run.state) ? ` (${Math.floor(100 * run.step / run.max_steps)} %)` : ""), format(run.loss),
      h("td", {class: "left"}, run.best ? `${run.best.dataset} ${words(run.best.metric)} ${format(run.best.value)} at ${count(run.best.step)}` : "–"),
      h("td", {title: text(run.since)}, run.since ? age(run.since) : "–"), h("td", {class: "cut left", title: [run.reason, run.next].map(text).filter(Boolean).join("\n")}, text(run.reason) || (run.health === "good" ? "" : text(run.next)))],
      reason => ["", h("td", {class: "left"}, text(run.name)), h("td", {class: "left"}, reason), "", "", "", "", ""])),
      "Runs", rows.map(({run}) => run.name === this.current ? {"aria-current": "true"} : null));
    this.body.replaceChildren(sortable(view, this.sorted, to => { this.sorted = to; this.draw(); }));
    if (this.none) this.none.hidden = !this.compared.size;
    this.card.value.textContent = this.shown.length < this.runs.length ? `${this.shown.length} of ${this.runs.length}` : "";
    if (scroll !== null) view.scrollTop = scroll;
    else attempt(() => { const row = view.querySelector("[aria-current]"); if (row) view.scrollTop = row.offsetTop - view.clientHeight / 2; }, () => {});
    if (focused >= 0) [...this.body.querySelectorAll("button, input")][focused]?.focus();
  }
}
const addressed = () => new URLSearchParams(location.hash.slice(1));
const comparisonView = parameters => ({by: parameters.get("by"), find: parameters.get("find"), x: viewOf(parameters).x, log: viewOf(parameters).log});
function writeComparison(parameters, view) {
  for (const [key, value, usual] of [["by", view.by], ["find", view.find, ""], ["x", view.x, "step"], ["log", view.log === null || view.log === undefined ? null : Number(view.log)]])
    value === null || value === undefined || value === usual ? parameters.delete(key) : parameters.set(key, value);
}

// ---- Report

function showReport() {
  const bundles = report.runs;
  const holder = h("div"), top = h("div");
  const list = new RunList(name => open(name), null);
  let page = null;
  const open = name => {
    const bundle = bundles.find(b => b.run.name === name) || bundles[0];
    page = new RunPage(bundle, artifact => bundle.artifacts[artifact], viewOf(addressed()), view => {
      const parameters = addressed();
      writeView(parameters, view);
      history.replaceState(null, "", "#" + parameters);
    });
    holder.replaceChildren(page.element);
    page.show();
    if (bundles.length > 1) { list.show(bundles.map(b => b.run), bundle.run.name, new Set()); top.replaceChildren(list.element); }
  };
  app.replaceChildren(top, holder);
  let compare = null;
  if (bundles.length > 1) {
    app.prepend(h("header", {class: "run"}, h("h1", null, bundles.length + " runs")), attempt(() => {
      compare = comparison(bundles, null);
      compare.draw();
      return compare.element;
    }, reason => h("p", {class: "empty"}, reason)));
  }
  open(addressed().get("run") || bundles[0].run.name);
  app.append(h("p", {class: "where"}, "Report of ", when(report.created_at), " " + zone));
  return () => { if (compare) compare.draw(); page.drawCurves(); };
}

// ---- Live

function showLive() {
  let page = null, source = null, runs = [], current = null, redraw = 0, lastOpen = 0, lastCompare = 0, compare = null;
  const compared = new Set(), missing = h("div"), top = h("div"), holder = h("div"), compareHolder = h("div"), bundles = new Map();
  // What is below the list: the run or the comparison. Nothing that is shown moves when runs are ticked.
  let isComparing = false;
  const tabs = {run: button("Run", () => choose(false)), comparison: button("Comparison", () => choose(true))}, bar = h("div", {class: "tabs", hidden: true}, tabs.run, tabs.comparison);
  app.replaceChildren(missing, top, bar, compareHolder, holder);
  const fail = error => { if (!page) holder.replaceChildren(h("p", {class: "empty"}, "Cannot read the run: " + error.message)); };
  const artifactUrl = name => artifact => "/v1/artifacts/" + encodeURIComponent(artifact) + (name ? "?run=" + encodeURIComponent(name) : "");
  const schedule = () => { if (!redraw) redraw = setTimeout(() => { redraw = 0; if (page && !document.hidden && !isComparing) page.drawCurves(); }, 1500); };
  document.addEventListener("visibilitychange", () => { if (!document.hidden && page) { page.drawHeader(); page.drawNow(); page.drawCurves(); } });

  // The view is in the address: the run that is shown, what of it, and the runs that are compared.
  const address = (name, change) => {
    const parameters = name === addressed().get("run") || !addressed().has("run") ? addressed() : new URLSearchParams();
    parameters.set("run", name);
    parameters.delete("compare");
    for (const other of compared) parameters.append("compare", other);
    isComparing ? parameters.set("show", "comparison") : parameters.delete("show");
    if (change) change(parameters);
    return "#" + parameters;
  };
  const remember = change => history.replaceState(null, "", address(current, change));
  const show = name => { isComparing = false; const to = address(name); if (to === location.hash) choose(false); else location.hash = to; };
  const wanted = () => runs.find(run => run.name === addressed().get("run"));
  function choose(isOn) {
    isComparing = isOn && compared.size > 1;
    bar.hidden = compared.size < 2;
    tabs.run.textContent = "Run " + (current ?? "");
    tabs.comparison.textContent = `Comparison of ${compared.size} runs`;
    tabs.run.setAttribute("aria-pressed", !isComparing);
    tabs.comparison.setAttribute("aria-pressed", isComparing);
    compareHolder.hidden = !isComparing;
    holder.hidden = isComparing;
    if (current !== null) remember();
    if (isComparing && compare) compare.draw();
    else if (page) page.drawCurves();
  }

  async function open(name) {
    current = name;
    const id = ++lastOpen, waiting = [];  // events that arrive while the run is read
    let isLoading = 0;
    const nothing = {metric: "", columns: {step: [], loss: []}, records_per_row: 1};
    const load = async () => {
      ++isLoading;
      try {
        const [run, curves] = await Promise.allSettled([get("/v1/run", name), get("/v1/curves", name)]);
        if (id !== lastOpen) return;
        if (run.status === "rejected") throw run.reason;
        const unreadable = curves.status === "rejected" ? "the curves cannot be read: " + curves.reason.message : null;
        const bundle = {run: run.value, curves: curves.value ?? (page ? page.curves : nothing)};
        if (page) {
          Object.assign(page, bundle, {offline: null, unreadable});
          page.drawHeader();
          page.drawRun();
          page.drawCurves();
          page.drawLog(page.run.log);
        } else {
          page = new RunPage(bundle, artifactUrl(name), viewOf(addressed()), view => remember(parameters => writeView(parameters, view)));
          page.unreadable = unreadable;
          holder.replaceChildren(page.element);
          page.show();
          drawList();
        }
      } finally {
        if (--isLoading === 0 && page && id === lastOpen) for (const handle of waiting.splice(0)) handle();
      }
    };
    const connect = () => {
      if (source) source.close();
      const mine = source = new EventSource("/v1/events?run=" + encodeURIComponent(name));
      const on = (event, handle) => mine.addEventListener(event, e => {
        if (mine !== source) return;
        const data = JSON.parse(e.data);
        if (page && !isLoading) attempt(() => handle(data), () => {});
        else if (waiting.length < 1000) waiting.push(() => handle(data));
      });
      on("status", status => {
        const isFirst = !page.status;
        page.status = status;  // null: stokerd has exited
        page.offline = null;
        if (document.hidden) return;
        if (isFirst && status) { page.nowCard.hidden = false; page.lossCard.className = "card two"; }
        page.drawHeader();
        page.drawNow();
      });
      on("train", rows => { if (page.addRows(rows)) load().catch(fail); else schedule(); if (!page.status) page.drawHeader(); });
      on("log", lines => page.addLog(lines));
      on("run", () => get("/v1/run", name).then(run => { if (mine === source) { page.run = run; page.drawRun(); page.drawHeader(); schedule(); } }).catch(fail));
      on("reset", () => load().catch(fail));
      mine.onerror = () => {
        if (mine !== source) return;
        if (page && !page.offline) { page.offline = timestamp(new Date().toISOString()).slice(11); page.drawHeader(); }
        // After an answer other than 200, the browser does not try again.
        if (mine.readyState === EventSource.CLOSED) setTimeout(() => { if (mine === source) connect(); }, 5000);
      };
      mine.onopen = () => { if (page ? page.offline : !isLoading) load().catch(fail); };
    };
    connect();
    await load().catch(fail);
  }
  // Reads those that are not read yet, a few at a time; a run that cannot be read is named.
  async function readCompared() {
    const id = ++lastCompare;
    for (const name of bundles.keys()) if (!compared.has(name)) bundles.delete(name);
    compareHolder.hidden = !isComparing;
    if (compared.size < 2) { compare = null; compareHolder.replaceChildren(); return choose(false); }
    const missing = [...compared].slice(0, kMaxCompared).filter(name => !bundles.has(name)), failed = [];
    const rows = {rows: compared.size > 20 ? 500 : 8192};
    const work = async () => {
      for (let name; (name = missing.shift()) !== undefined;) {
        try { const [run, curves] = await Promise.all([get("/v1/run", name), get("/v1/curves", name, rows)]); bundles.set(name, {run, curves}); } catch (error) { failed.push(`${name}: ${error.message}`); }
      }
    };
    await Promise.all(Array.from({length: kReadTogether}, work));
    if (id !== lastCompare) return;
    const known = [...compared].filter(name => bundles.has(name)).map(name => bundles.get(name));
    compare = comparison(known, show, {total: compared.size, view: comparisonView(addressed()), onView: view => remember(parameters => writeComparison(parameters, view))});
    compareHolder.replaceChildren(...(failed.length ? [h("p", {class: "notice bad"}, "cannot be read: " + failed.join("; "))] : []),
      ...(compared.size > kMaxCompared ? [h("p", {class: "notice"}, `the first ${kMaxCompared} of ${compared.size} runs are compared`)] : []), compare.element);
    compare.setStates(runs);
  }
  const list = new RunList(show, (names, isOn) => {
    const wasComparable = compared.size > 1;
    for (const name of names) compared[isOn ? "add" : "delete"](name);
    drawList();
    if (isOn && !wasComparable && compared.size > 1) isComparing = true;
    choose(isComparing);
    readCompared().catch(fail);
  });
  function drawList() {
    if (runs.length < 2) return top.replaceChildren();
    if (list.element.parentNode !== top) top.replaceChildren(list.element);
    list.show(runs, current, compared);
  }
  const readList = async () => {
    runs = await get("/v1/runs");
    drawList();
    if (compare && isComparing && !document.hidden) compare.setStates(runs);
    if (current !== null) return;
    if (!runs.length) return holder.replaceChildren(h("p", {class: "empty"}, "No run yet"));
    for (const name of addressed().getAll("compare")) if (runs.some(run => run.name === name)) compared.add(name);
    const name = addressed().get("run");
    missing.replaceChildren(...(name && !wanted() ? [h("p", {class: "notice bad", role: "alert"}, name + ": there is no such run here; this is the newest")] : []));
    // Runs that are ticked while the first one is read are not those of the address.
    const isLinked = compared.size > 1, isShown = addressed().get("show") === "comparison" || (isLinked && !name);
    await open((wanted() || runs[0]).name);
    if (isLinked) { drawList(); isComparing = isShown; choose(isShown); await readCompared(); }
  };
  window.addEventListener("hashchange", () => {
    const run = wanted();
    missing.replaceChildren();
    if (!run) return;
    isComparing = addressed().get("show") === "comparison" && compared.size > 1;
    if (run.name !== current) { page = null; open(run.name).catch(fail); }
    else if (page) { Object.assign(page.view, viewOf(addressed())); }
    choose(isComparing);
  });
  setInterval(() => { if (!document.hidden) readList().catch(fail); }, 10000);
  readList().catch(fail);
  return () => { if (page) page.drawCurves(); if (compare) compare.draw(); };
}

Chart.defaults.font.family = getComputedStyle(document.body).fontFamily;
const again = report ? showReport() : showLive();
isDark.addEventListener("change", () => again());
// For the tests: what is shown, how long drawing took in total, and the last time a comparison was drawn; the formats of numbers.
window.stokerPage = {drawMs: () => drawMs, redrawMs: () => redrawMs, prepareMs: () => prepareMs, formats: {format, rate, milliseconds, count, bytes, duration, estimate}};
})();
