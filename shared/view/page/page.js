"use strict";
// The page of a run: live over /v1/…, or a report with its data inside. No other resources.
(() => {
const report = JSON.parse(document.getElementById("data").textContent);
const app = document.getElementById("app");
const kBuckets = 700;  // points of a drawn line; more are averaged, with a band from minimum to maximum
const colors = ["--train", "--val", "--third", "--fourth", "--fifth", "--sixth"];

// ---- Text

const isNumber = x => typeof x === "number" && isFinite(x);
function format(x, digits = 4) {
  if (!isNumber(x)) return "–";
  const size = Math.abs(x);
  if (size !== 0 && (size < 1e-3 || size >= 1e7)) return x.toExponential(Math.max(0, digits - 3));
  if (Number.isInteger(x)) return count(x);
  return x.toFixed(Math.min(8, Math.max(0, digits - 1 - Math.floor(Math.log10(size)))));
}
// As `stokerctl top`, which does not group the digits from 1000 on.
function milliseconds(x) {
  if (!isNumber(x)) return "–";
  if (x > 0 && x < .01) return "<0.01";
  return x < 100 ? x.toFixed(x < 10 ? 2 : 1) : count(x);
}
function shortest(x) {
  const size = Math.abs(x);
  if (size !== 0 && (size < 1e-3 || size >= 1e7)) return Number(x.toPrecision(3)).toExponential().replace("e+", "e");
  return size >= 1e4 ? count(x) : String(Number(x.toPrecision(3)));
}
const count = x => isNumber(x) ? Math.round(x).toString().replace(/\B(?=(\d{3})+$)/g, "\u202f") : "–";
function bytes(x) {
  if (!isNumber(x)) return "–";
  const units = ["B", "kB", "MB", "GB", "TB"];
  let unit = 0;
  while (x >= 1000 && unit < 4) { x /= 1000; ++unit; }
  return (unit ? x.toPrecision(3) : x) + " " + units[unit];
}
function duration(s) {
  if (!isNumber(s) || s < 0) return "–";
  if (s < 60) return s.toFixed(s < 10 ? 1 : 0) + " s";
  if (s < 3600) return Math.floor(s / 60) + " min " + Math.floor(s % 60) + " s";
  if (s < 86400) return Math.floor(s / 3600) + " h " + Math.floor(s % 3600 / 60) + " min";
  return Math.floor(s / 86400) + " d " + Math.floor(s % 86400 / 3600) + " h";
}
const estimate = s => s < 99.5 ? Math.max(1, Math.round(s)) + " s" : duration(Math.round(s / (s < 600 ? 10 : 60)) * (s < 600 ? 10 : 60)).replace(/ 0 (s|min|h)$/, "");
function age(time) {  // of the future: a clock of another machine
  const seconds = time ? (Date.now() - Date.parse(time)) / 1000 : NaN;
  return seconds >= 0 ? duration(seconds) + " ago" : "–";
}
const words = name => name.replace("_per_", "/").replaceAll("_", " ");
// What a run contains as text, of any type: String() calls an object's own toString, which can be anything.
const text = x => typeof x === "string" ? x : x === undefined || x === null ? "" : JSON.stringify(x);
const timestamp = x => text(x).slice(0, 19).replace("T", " ");
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
let nextId = 0;
function card(title, size, ...children) {
  const id = "h" + ++nextId;
  const value = h("span", {class: "value"});
  const head = h("div", {class: "head"}, h("h2", {id}, title), value);
  const element = h("section", {class: "card " + size, "aria-labelledby": id}, head, ...children);
  return Object.assign(element, {head, value});
}
function table(titles, rows, caption, attributes = []) {
  return h("div", {class: "scroll", tabindex: 0, role: "region", "aria-label": caption}, h("table", null,
    h("caption", {class: "hidden"}, caption),
    h("thead", null, h("tr", null, titles.map(t => h("th", {scope: "col", class: t.startsWith("<") ? "left" : null}, t.startsWith("<") ? t.slice(1) : t)))),
    h("tbody", null, rows.map((row, i) => h("tr", attributes[i] || null, row.map(cell => cell instanceof Node && cell.tagName === "TD" ? cell : h("td", null, cell)))))));
}
function bar(parts, label) {  // [[value, color index]], fractions of one
  const ns = "http://www.w3.org/2000/svg";
  const svg = document.createElementNS(ns, "svg");
  svg.setAttribute("viewBox", "0 0 100 8");
  svg.setAttribute("preserveAspectRatio", "none");
  let x = 0;
  for (const [value, color] of parts) {
    const rect = document.createElementNS(ns, "rect");
    rect.setAttribute("x", x);
    rect.setAttribute("width", Math.max(0, value) * 100);
    rect.setAttribute("height", 8);
    rect.setAttribute("fill", "var(" + colors[color] + ")");
    svg.append(rect);
    x += Math.max(0, value) * 100;
  }
  return h("div", {class: "bar", role: "img", "aria-label": label}, svg);
}
const legend = names => h("ul", {class: "legend"}, names.map(([name, color]) => h("li", null, h("span", {class: "swatch c" + color}), name)));
const say = text => { document.getElementById("announcer").textContent = text; };

// ---- Curves

// Row numbers [begin, end) whose step is in the last `part` of the run.
function visible(columns, part) {
  const steps = columns.step, n = steps.length;
  if (part >= 1 || n === 0) return [0, n];
  const from = steps[n - 1] - (steps[n - 1] - steps[0]) * part;
  let begin = 0;
  while (begin < n - 2 && steps[begin] < from) ++begin;
  return [begin, n];
}
// Averages of `column` in at most kBuckets groups of rows, with their minimum and maximum.
function decimate(columns, column, [begin, end], lows = column, highs = column) {
  const xs = columns.step, ys = columns[column], ls = columns[lows], hs = columns[highs];
  const per = Math.max(1, Math.ceil((end - begin) / kBuckets));
  const line = [], low = [], high = [];
  for (let i = begin; i < end; i += per) {
    const stop = Math.min(end, i + per);
    let sum = 0, n = 0, min = Infinity, max = -Infinity;
    for (let k = i; k < stop; ++k) {
      const y = ys[k];
      if (y === null || y === undefined) continue;
      sum += y; ++n;
      if (ls[k] !== null && ls[k] < min) min = ls[k];
      if (hs[k] !== null && hs[k] > max) max = hs[k];
    }
    const x = xs[stop - 1];
    line.push({x, y: n ? sum / n : null});
    low.push({x, y: n ? min : null});
    high.push({x, y: n ? max : null});
  }
  return {line, low, high, merged: per > 1 || lows !== column};
}
const style = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const translucent = (color, alpha) => color + Math.round(alpha * 255).toString(16).padStart(2, "0");

// The color of run `i` of `n`: after the palette, around the color wheel.
function runColor(i, n) {
  if (n <= colors.length) return style(colors[i]);
  const [light, wide] = matchMedia("(prefers-color-scheme: dark)").matches ? [.68, .26] : [.42, .34];
  const part = k => light - wide * Math.max(-1, Math.min((k + 12 * i / n) % 12 - 3, 9 - (k + 12 * i / n) % 12, 1));
  return "#" + [0, 8, 4].map(k => Math.round(255 * part(k)).toString(16).padStart(2, "0")).join("");
}
// As the terminal's plot: the largest value is more than a hundred times the smallest.
function spansDecades(sets) {
  let low = Infinity, high = -Infinity;
  for (const {points} of sets) for (const {y} of points) if (isNumber(y)) { low = Math.min(low, y); high = Math.max(high, y); }
  return low > 0 && high / low > 100;
}

class Plot {
  constructor(title, options = {}) {
    this.title = title;
    this.options = options;
    this.canvas = h("canvas", {role: "img", tabindex: 0, "aria-label": title});
    this.canvas.addEventListener("keydown", event => this.onKey(event));
    this.element = h("div", {class: "plot"}, this.canvas);
    this.sets = [];
    this.log = null;  // chosen by spansDecades()
  }
  // A button that changes between a linear and a logarithmic axis.
  logButton(redraw) {
    this.button = h("button", {type: "button", "aria-pressed": "false", onclick: () => { this.log = !this.isLog; redraw(); }}, "log scale");
    return this.button;
  }
  // sets: [{name, color, points, marks, low, high, area}]; a color is an index or text
  draw(sets) {
    const start = performance.now();
    this.sets = sets.filter(s => s.points.length > 0);
    const datasets = [];
    for (const set of this.sets) {
      const color = typeof set.color === "string" ? set.color : style(colors[set.color % colors.length]);
      const common = {parsing: false, normalized: true, borderColor: color, pointBackgroundColor: color, spanGaps: false};
      if (set.low) {
        datasets.push({...common, label: "", data: set.low, borderWidth: 0, pointRadius: 0, hidden: false, isBand: true});
        datasets.push({...common, label: "", data: set.high, borderWidth: 0, pointRadius: 0, fill: "-1", backgroundColor: translucent(color, .16), isBand: true});
      }
      datasets.push({...common, label: set.name, data: set.points, borderWidth: set.marks ? 1.5 : 1.6,
        pointRadius: set.marks || set.points.length === 1 ? 2.5 : 0, pointHoverRadius: 4, tension: 0,
        fill: set.area ? (set.area === 1 ? "origin" : "-1") : false, backgroundColor: translucent(color, set.area ? .3 : 1), order: set.marks ? 0 : 1});
    }
    this.isLog = this.log ?? (!this.options.zero && spansDecades(this.sets));
    if (this.button) this.button.setAttribute("aria-pressed", this.isLog);
    const soft = style("--soft"), line = style("--line");
    const axis = {grid: {color: line, drawBorder: false, drawTicks: false}, ticks: {color: soft, padding: 6, maxTicksLimit: 6, maxRotation: 0, font: {size: 11}}};
    const config = {
      type: "line", data: {datasets},
      options: {
        animation: false, responsive: true, maintainAspectRatio: false, normalized: true, events: ["mousemove", "mouseout", "touchstart", "touchmove"],
        interaction: {mode: "nearest", axis: "x", intersect: false},
        layout: {padding: {top: 4, right: 6}},
        scales: {
          x: {...axis, type: "linear", grid: {...axis.grid, display: false}, ticks: {...axis.ticks, callback: count}, bounds: "data", min: this.fromZero ? 0 : undefined},
          y: {...axis, type: this.isLog ? "logarithmic" : "linear", beginAtZero: !!this.options.zero,
            ticks: {...axis.ticks, callback: x => this.isLog && spansDecades(this.sets) && !/^[125]/.test(x.toExponential()) ? "" : shortest(x)}}},
        plugins: {legend: {display: false}, tooltip: {
          filter: item => !item.dataset.isBand, backgroundColor: style("--ink"), titleColor: style("--card"), bodyColor: style("--card"), padding: 9, displayColors: this.sets.length > 1, boxWidth: 8, boxHeight: 8, itemSort: (a, b) => b.parsed.y - a.parsed.y,
          callbacks: {title: items => items.length ? "step " + count(items[0].parsed.x) : "", label: item => item.dataset.label + "  " + format(item.parsed.y, 5)}}}}};
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
  describe() {
    const parts = this.sets.map(({name, points}) => {
      const known = points.filter(p => isNumber(p.y));
      if (!known.length) return name + ": no value";
      const first = known[0], last = known[known.length - 1];
      return `${name}: ${format(first.y)} at step ${first.x}, ${format(last.y)} at step ${last.x}`;
    });
    return this.title + ". " + (parts.join("; ") || "No data yet.") + ". Arrow keys read single points.";
  }
  onKey(event) {
    const move = {ArrowLeft: -1, ArrowRight: 1, Home: -1e9, End: 1e9}[event.key];
    if (!move || !this.chart || !this.sets.length) return;
    event.preventDefault();
    const set = this.chart.data.datasets.findIndex(s => !s.isBand), data = this.chart.data.datasets[set].data;
    this.at = Math.max(0, Math.min(data.length - 1, (this.at === undefined ? data.length : this.at) + move * (event.shiftKey ? 10 : 1)));
    const active = [{datasetIndex: set, index: this.at}];
    this.chart.setActiveElements(active);
    this.chart.tooltip.setActiveElements(active, {x: 0, y: 0});
    this.chart.update("none");
    say(`${this.chart.data.datasets[set].label}, step ${data[this.at].x}: ${format(data[this.at].y, 5)}`);
  }
}
let drawMs = 0;
const kMaxCompared = 50;

// ---- Data of a run

const get = async (path, name) => {
  const answer = await fetch(path + (name ? "?run=" + encodeURIComponent(name) : ""));
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

// ---- The view of one run

class RunPage {
  constructor(bundle, artifact) {
    this.artifact = artifact;  // name -> URL, or {text}
    this.run = bundle.run;
    this.curves = bundle.curves;
    this.status = bundle.status || null;
    this.part = 1;
    this.build();
  }
  build() {
    const range = h("select", {"aria-label": "Steps shown", onchange: () => { this.part = Number(range.value); this.drawCurves(); }},
      [[1, "all steps"], [.5, "last half"], [.2, "last fifth"], [.05, "last twentieth"]].map(([v, t]) => h("option", {value: v}, t)));
    this.pick = h("select", {"aria-label": "Metric of the evaluation", onchange: () => this.drawCurves()});
    const zero = {zero: true};
    this.plots = {loss: new Plot("Loss"), metric: new Plot("Metric"), lr: new Plot("Learning rate", zero),
      phases: new Plot("Phases of a step in milliseconds", zero), speed: new Plot("Samples per second", zero), grad: new Plot("Gradient norm", zero)};
    const p = this.plots;
    this.lossCard = card("Loss", "two", p.loss.element);
    this.lossCard.head.append(range, p.loss.logButton(() => this.drawCurves()));
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
    this.phaseCard = card("Phases of a step", "", p.phases.element, legend([["compute", 0], ["data wait", 1], ["checkpoint", 2]]));
    this.speedCard = card("Samples per second", "half", p.speed.element);
    this.gradCard = card("Gradient norm", "half", p.grad.element);
    this.evalCard = card("Evaluations", "half");
    this.checkpointCard = card("Checkpoints", "half");
    this.imageCard = card("Samples", "wide");
    this.classCard = card("Classes", "wide");
    this.errorCard = card("Sample errors", "wide");
    this.eventCard = card("Events", "wide");
    this.logCard = card("Log", "wide");
    this.configCard = h("section", {class: "card wide"});
    this.header = h("header", {class: "run"});
    this.main = h("main", {id: "main", class: "grid"}, this.lossCard, this.nowCard, this.metricCard, this.lrCard, this.phaseCard, this.speedCard, this.gradCard,
      this.evalCard, this.checkpointCard, this.imageCard, this.classCard, this.errorCard, this.eventCard, this.logCard, this.configCard);
    this.element = h("div", null, this.header, this.main);
    this.logPre = h("pre", {class: "log", tabindex: 0, role: "log", "aria-live": "off", "aria-label": "Last lines of the log"});
    this.logCard.append(this.logPre);
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
  // Values of the last record, or of the status if there is one.
  latest(column) {
    const values = this.curves.columns[column];
    return values && values.length ? values[values.length - 1] : null;
  }
  drawHeader() { attempt(() => this.header.replaceChildren(...this.headerParts()), reason => this.header.replaceChildren(h("h1", null, this.run.name), h("p", {class: "notice bad"}, reason))); }
  headerParts() {
    const {run, status} = this, known = x => status.step_time_ms > 0 ? x : null, state = status && !isOver(run.state) ? status.state : run.state;
    const step = status ? status.step : Math.max(run.step || 0, this.latest("step") || 0), max = status ? status.max_steps : run.max_steps;
    const figures = [["Step", count(step), max ? " of " + count(max) : ""], ["Loss", format(status ? known(status.loss) : this.latest("loss")), ""]];
    if (run.best) figures.push(["Best " + run.best.dataset + " " + words(run.best.metric), format(run.best.value), " at step " + count(run.best.step), aboutMetric(run, run.best.metric)]);
    for (const metric of this.trainingMetrics().slice(0, 4)) figures.push(["Training " + words(metric), format(this.latest("metric/" + metric)), ""]);
    figures.push(["Samples/s", format(status ? known(status.samples_per_second) : this.latest("samples_per_second"), 3), ""]);
    if (status && status.eta_seconds > 0 && !isOver(state) && state !== "paused") figures.push(["Remaining", "about " + estimate(status.eta_seconds), ""]);
    else figures.push(["Time", duration(this.latest("seconds")), ""]);
    document.title = `${run.name} · ${state}` + (max && !isOver(state) ? ` ${Math.floor(100 * step / max)} %` : "");
    return [
      h("div", {class: "title"}, h("h1", null, run.name), h("span", {class: "state " + stateClass(state) + (isOver(state) ? "" : " live")}, state),
        h("span", {class: "spacer"}), h("span", {class: "where"}, status && status.device ? "on " + status.device + " · " : "", run.run_dir)),
      max ? h("progress", {max: 1, value: Math.min(1, step / max), "aria-label": `Step ${step} of ${max}`}) : h("p"),
      h("dl", {class: "figures"}, figures.map(([name, value, more, about]) => h("div", about ? {title: about} : null, h("dt", null, name), h("dd", null, value, h("small", null, more))))),
      ...(run.reason && isOver(state) ? [h("p", {class: "notice" + (stateClass(state) === "bad" ? " bad" : "")}, [state, run.since && age(run.since)].filter(part => part && part !== "–").join(" ") + ": " + run.reason)] : []),
      ...(state === "degraded" ? [h("p", {class: "notice bad", role: "alert"}, `degraded: ${status.checkpoint.last_error}; ${count(Math.max(0, step - status.checkpoint.last_saved_step))} steps since the last checkpoint`)] : []),
      ...(run.next && isOver(state) ? [h("p", {class: "notice"}, "next: " + run.next)] : []),
      ...(run.last_start ? [h("p", {class: "notice bad"}, `a later start ended before training (${run.last_start.time}, exit code ${run.last_start.exit_code}): ${run.last_start.reason}`)] : []),
      ...(status && status.waiting_for ? [h("p", {class: "notice"}, "waiting for " + status.waiting_for)] : []),
      ...(this.offline ? [h("p", {class: "notice bad", role: "alert"}, "no connection; the values are from " + this.offline)] : [])];
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
    const {feed, checkpoint, evaluator, memory} = status;
    const row = (name, value, ...more) => h("div", null, h("div", {class: "row"}, h("span", null, name), h("b", null, value)), ...more);
    const note = text => text ? h("div", {class: "note"}, text) : null;
    const wait = Math.min(1, (feed.data_wait_ms || 0) / (status.step_time_ms || 1));
    const workers = Math.max(1, feed.workers);
    const activities = [["reading", feed.workers_reading, 0], ["decoding", feed.workers_decoding, 1], ["transforming", feed.workers_transforming, 2], ["waiting", feed.workers_waiting, 3]];
    const lag = checkpoint.last_saved_step - evaluator.last_evaluated_step;
    const failures = [[feed.sample_errors, "sample errors"], [feed.worker_crashes, "worker crashes"], [feed.worker_timeouts, "timeouts"], [feed.requeued_batches, "batches requeued"], [status.skipped_steps, "steps skipped"], [status.rollbacks, "rollbacks"]]
      .filter(([n]) => n > 0).map(([n, what]) => count(n) + " " + what);
    return [
      ...(!(status.step_time_ms > 0) ? [row("Step", "–")] : [row("Step", milliseconds(status.step_time_ms) + " ms", bar([[1 - wait, 0], [wait, 1]], `data wait ${Math.round(100 * wait)} % of a step`),
        note(`data wait ${milliseconds(feed.data_wait_ms)} ms` + (status.device_time_ms > 0 ? `, device ${milliseconds(status.device_time_ms)} ms` : "")))]),
      row("Ring", `${feed.ready_batches} of ${feed.queue_capacity} batches ready`, bar([[feed.queue_capacity ? feed.ready_batches / feed.queue_capacity : 0, 2]], "ring occupancy")),
      row("Workers", count(feed.workers), bar(activities.map(([, n, c]) => [(n || 0) / workers, c]), activities.map(([name, n]) => `${name} ${format(n, 2)}`).join(", ")),
        note(activities.filter(([, n]) => n >= .005).map(([name, n]) => `${format(n, 2)} ${name}`).join(", ") + (feed.external_producers ? `, ${feed.external_producers} external producers` : ""))),
      ...this.ranks(row, note),
      row("Memory", bytes(memory.rss_bytes), note("peak " + bytes(memory.peak_rss_bytes) + (memory.device_reserved_bytes ? `; device ${bytes(memory.device_allocated_bytes)} of ${bytes(memory.device_reserved_bytes)} reserved` : ""))),
      row("Checkpoint", checkpoint.saved_total || checkpoint.last_saved_step ? "step " + count(checkpoint.last_saved_step) : "none yet",
        note((checkpoint.is_saving ? "saving; " : "") + `stall ${milliseconds(checkpoint.stall_ms)} ms` + (checkpoint.failed_total ? `; ${checkpoint.failed_total} failed: ${checkpoint.last_error}` : ""))),
      row("Evaluator", words(evaluator.state), note(evaluator.last_evaluated_step ? `step ${count(evaluator.last_evaluated_step)}` + (lag > 0 ? `, ${count(lag)} steps behind the newest checkpoint` : ", up to date") : "")),
      row("Up", duration(status.uptime_seconds), note(failures.join(", ")))];
  }
  // The ranks of a group, the time of each against the slowest.
  ranks(row, note) {
    const {world_size: size, restart_count: restarts, ranks} = this.status.group || {};
    if (!(size > 1)) return [];
    const times = ranks.map(r => r.compute_ms), slowest = times.indexOf(Math.max(...times)), max = times[slowest] || 1;
    const median = [...times].sort((a, b) => a - b)[Math.floor(times.length / 2)];
    const text = ranks.length ? `slowest: rank ${slowest}, ${milliseconds(max)} ms/step (median ${milliseconds(median)}), data wait ${milliseconds(ranks[slowest].data_wait_ms)} ms` : "";
    const bars = ranks.length > 16 ? [] : ranks.map((r, i) => h("div", {class: "rank"}, h("span", null, String(i)),
      bar([[(r.compute_ms - r.data_wait_ms) / max, 0], [r.data_wait_ms / max, 1]], `rank ${i}: ${milliseconds(r.compute_ms)} ms, data wait ${milliseconds(r.data_wait_ms)} ms`)));
    return [row("Ranks", count(size), ...bars, note([text, restarts ? count(restarts) + (restarts === 1 ? " restart" : " restarts") : ""].filter(Boolean).join("; ")))];
  }
  drawCurves() { attempt(() => this.drawPlots(), reason => { this.lossCard.value.textContent = reason; }); }
  drawPlots() {
    const {columns} = this.curves, range = visible(columns, this.part), from = range[0] > 0 ? columns.step[range[0]] : 0;
    const chosen = mainMetric(this.run);
    for (const plot of Object.values(this.plots)) plot.fromZero = this.part === 1;
    const loss = decimate(columns, "loss", range, "loss_min", "loss_max");
    const wide = columns.step.length > kBuckets || this.curves.records_per_row > 1;
    const sets = [{name: "train", color: 0, points: loss.line, ...(wide ? {low: loss.low, high: loss.high} : {})}];
    const names = [["train" + (wide ? " (mean, minimum to maximum)" : ""), 0]];
    let color = 1;
    for (const [dataset, metric] of metricsOf(this.run)) {
      if (metric !== "loss") continue;
      sets.push({name: dataset, color, marks: true, points: pointsOf(this.run, dataset, "loss", from)});
      names.push([dataset, color++]);
    }
    this.plots.loss.draw(sets);
    this.lossLegend.replaceChildren(legend(names));
    this.lossCard.value.textContent = format(this.latest("loss"));

    const metrics = [...new Set([...metricsOf(this.run).map(([, m]) => m), ...this.trainingMetrics()].filter(m => m !== "loss"))];
    const options = metrics.join();
    if (this.pick.dataset.options !== options) {
      this.pick.dataset.options = options;
      this.pick.replaceChildren(...metrics.map(m => h("option", {value: m, title: aboutMetric(this.run, m)}, words(m))));
      const preferred = [chosen && chosen[1], ...this.trainingMetrics()].find(m => metrics.includes(m));
      if (preferred) this.pick.value = preferred;
    }
    this.metricCard.hidden = metrics.length === 0;
    if (metrics.length) {
      const metric = this.pick.value, lines = [], labels = [];
      if (this.trainingMetrics().includes(metric)) {
        lines.push({name: "train", color: 0, points: decimate(columns, "metric/" + metric, range).line});
        labels.push(["train", 0]);
      }
      let next = 1;
      for (const [dataset, name] of metricsOf(this.run)) {
        if (name !== metric) continue;
        lines.push({name: dataset, color: next, marks: true, points: pointsOf(this.run, dataset, metric, from)});
        labels.push([dataset, next++]);
      }
      this.plots.metric.draw(lines);
      this.metricLegend.replaceChildren(legend(labels));
    }
    const single = (plot, column, name, cardOf, text) => {
      plot.draw([{name, color: 0, points: decimate(columns, column, range).line}]);
      cardOf.value.textContent = text;
    };
    single(this.plots.lr, "lr", "learning rate", this.lrCard, format(this.latest("lr"), 3));
    single(this.plots.speed, "samples_per_second", "samples/s", this.speedCard, format(this.latest("samples_per_second"), 3));
    single(this.plots.grad, "grad_norm", "gradient norm", this.gradCard, format(this.latest("grad_norm"), 3));
    const wait = decimate(columns, "data_wait_ms", range).line, stall = decimate(columns, "stall_ms", range).line, step = decimate(columns, "step_time_ms", range).line;
    const layer = f => step.map((p, i) => ({x: p.x, y: p.y === null ? null : f(i, p.y)}));
    this.plots.phases.draw([{name: "compute", color: 0, area: 1, points: layer((i, y) => Math.max(0, y - wait[i].y - stall[i].y))},
      {name: "and data wait", color: 1, area: 2, points: layer((i, y) => Math.max(0, y - stall[i].y))}, {name: "and checkpoint", color: 2, area: 3, points: layer((i, y) => y)}]);
    this.phaseCard.value.textContent = milliseconds(this.latest("step_time_ms")) + " ms";
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
    const bests = names.map(([d, m]) => bestValue(run, d, m));
    return [table(["step", ...names.map(([d, m]) => (new Set(names.map(n => n[0])).size > 1 ? d + " " : "") + words(m)), "time"], evals.slice(0, 100).map(e =>
      [count(e.step), ...names.map(([d, m], i) => { const v = (e.datasets[d] || {})[m]; return isNumber(v) && v === bests[i] ? h("td", null, h("b", {title: "best: " + aboutMetric(run, m)}, format(v))) : format(v); }), duration(e.duration_seconds)]), "Evaluations", evals.map(e => run.best && e.step === run.best.step ? {class: "best"} : null))];
  }
  checkpoints() {
    const {run} = this, checkpoints = [...run.checkpoints].reverse();
    if (!checkpoints.length) return [h("p", {class: "empty"}, "No checkpoint yet")];
    const valueOf = c => { const e = run.evaluations.find(x => x.manifest_sha256 === c.manifest_sha256), m = mainMetric(run); return e && m ? format((e.datasets[m[0]] || {})[m[1]]) : "–"; };
    return [table(["step", "saved", "size", mainMetric(run) ? mainMetric(run).map(words).join(" ") : "value"], checkpoints.map(c => [count(c.step), report ? timestamp(c.created_at) : age(c.created_at), bytes(c.bytes), valueOf(c)]),
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
      ...(run.setting_changes.length ? [h("h3", null, "Changed while the run trained"), table(["step", "<setting", "<previous", "<value", "<time"], [...run.setting_changes].reverse().map(c =>
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
    const figures = this.run.artifacts.filter(a => a.step === this.imageStep && !a.kind.endsWith(".md")).map(a => {
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
      parts.push(h("figure", null, h("div", {class: "scroll", tabindex: 0, role: "region", "aria-label": "Confusion matrix"}, h("table", {class: "matrix"}, h("caption", {class: "hidden"}, "Confusion matrix: a row for each label, a column for each prediction"),
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
    }
    return columns.step.length > 32768;  // then the server's averages are read again
  }
}
// A line that is not of stoker's log is shown as it is.
function logLine(line) {
  let time = "", level = "", rest = line;
  if (line.startsWith("{")) {
    try {
      const {time: t, level: l, event, ...fields} = JSON.parse(line);
      if ([t, l, event].every(x => typeof x === "string")) {
        [time, level] = [t, l];
        rest = event + " " + Object.entries(fields).map(([k, v]) => k + "=" + (typeof v === "string" && !/\s/.test(v) ? v : JSON.stringify(v))).join(" ");
      }
    } catch { /* not JSON */ }
  } else {
    const match = line.match(/^(\S+Z) (\w+) +(.*)$/);
    if (match) [, time, level, rest] = match;
  }
  const kind = level === "warning" ? "warn" : level === "error" ? "bad" : "";
  return h("span", {class: kind}, h("time", null, timestamp(time)), ` ${level === "info" ? "" : level.padEnd(8)}${rest}\n`);
}

// ---- Several runs

// Numbers by their value, before text; what is missing last.
function inOrder(a, b) {
  const [x, y] = [a, b].map(v => isNumber(v) ? v : v === "" || isNaN(v ?? NaN) ? null : Number(v));
  if (x !== null && y !== null) return x - y;
  if (x !== null || y !== null) return x !== null ? -1 : 1;
  return String(a ?? "\uffff").localeCompare(String(b ?? "\uffff"), "en", {numeric: true});
}
// A table of the runs with what differs, best first, and their curves.
function comparison(bundles, onOpen, total = bundles.length) {
  const plot = new Plot("Comparison"), settings = bundles.map(b => settingsOf(b.run.config));
  const metricKeys = [...new Set(bundles.flatMap(b => metricsOf(b.run).map(m => m.join("/"))))];
  const differing = [...new Set(settings.flatMap(s => [...s.keys()]))].filter(key => key !== "run.dir" && new Set(settings.map(s => s.get(key))).size > 1);
  const valueOf = differing.length === 1 ? i => settings[i].get(differing[0]) : i => bundles[i].run.name;
  const order = bundles.map((_, i) => i).sort((a, b) => inOrder(valueOf(a), valueOf(b)));
  const color = i => runColor(order.indexOf(i), bundles.length);
  const pick = h("select", {"aria-label": "Compared metric", onchange: () => { sorted = null; draw(); }}, [["train/loss", "train loss"], ...metricKeys.map(k => [k, words(k.replace("/", " "))])].map(([v, t]) => h("option", {value: v}, t)));
  const pointsOfPick = b => {
    if (pick.value === "train/loss") return decimate(b.curves.columns, "loss", [0, b.curves.columns.step.length]).line;
    const [dataset, metric] = pick.value.split("/");
    return pointsOf(b.run, dataset, metric);
  };
  // One evaluation of each run is a column of points: then the training loss says more.
  const hasCurve = key => bundles.some(b => pointsOf(b.run, ...key.split("/")).length > 1);
  const preferred = [...bundles.map(b => mainMetric(b.run)).filter(Boolean).map(m => m.join("/")), ...metricKeys].find(hasCurve);
  if (preferred) pick.value = preferred;
  // The best value of a metric whose direction is known, else the last.
  const found = b => {
    if (pick.value === "train/loss") {
      const {step, loss} = b.curves.columns, last = loss.findLastIndex(isNumber);
      return last < 0 ? {} : {x: step[last], y: loss[last]};
    }
    const points = pointsOfPick(b).filter(p => isNumber(p.y)), metric = pick.value.split("/")[1], one = definitionOf(b.run, metric);
    if (!one || !points.length) return points[points.length - 1] || {};
    return points.reduce((best, p) => (one.direction === "maximize" ? p.y > best.y : p.y < best.y) ? p : best);
  };
  const isMaximized = () => bundles.some(b => (definitionOf(b.run, pick.value.split("/")[1]) || {}).direction === "maximize");
  let sorted = null;  // [column, whether the largest is first]; null: the best value first
  const filter = h("input", {type: "search", placeholder: "filter", "aria-label": "Filter the runs by name or setting", oninput: () => draw()});
  const body = h("div");
  const swatch = fill => {
    const ns = "http://www.w3.org/2000/svg", svg = document.createElementNS(ns, "svg"), rect = document.createElementNS(ns, "rect");
    for (const [key, value] of [["class", "swatch"], ["viewBox", "0 0 1 1"]]) svg.setAttribute(key, value);
    for (const [key, value] of [["width", 1], ["height", 1], ["fill", fill]]) rect.setAttribute(key, value);
    svg.append(rect);
    return svg;
  };
  const drawTable = shown => {
    const metricColumn = differing.length + 1;
    const titles = ["run", ...differing, words(pick.value.replace("/", " ")), "step", "time", "state"];
    const rows = shown.map(i => {
      const {run, curves} = bundles[i], best = found(bundles[i]), seconds = curves.columns.seconds || [];
      return {i, values: [run.name, ...differing.map(key => settings[i].get(key)), best.y, best.x, seconds[seconds.length - 1], run.state]};
    });
    const [column, descending] = sorted || [metricColumn, isMaximized()];
    rows.sort((a, b) => {
      const [x, y] = [a.values[column], b.values[column]];
      return [x, y].some(v => v === undefined || v === null) ? inOrder(x, y) : inOrder(x, y) * (descending ? -1 : 1);
    });
    const view = table(titles, rows.map(({i, values}) => values.map((value, k) =>
      k === 0 ? h("td", {class: "left"}, swatch(color(i)), onOpen ? h("button", {type: "button", onclick: () => onOpen(value)}, value) : value)
        : k < metricColumn ? h("td", {class: "wrap"}, value ?? "–") : k === metricColumn ? format(value) : k === metricColumn + 1 ? count(value) : k === metricColumn + 2 ? duration(value)
          : h("td", null, h("span", {class: "state " + stateClass(value)}, value)))), "Runs compared");
    view.querySelectorAll("th").forEach((head, k) => {
      const isSorted = k === column;
      head.setAttribute("aria-sort", isSorted ? descending ? "descending" : "ascending" : "none");
      head.replaceChildren(h("button", {type: "button", onclick: () => { sorted = [k, isSorted && !descending]; draw(); }}, titles[k], isSorted ? descending ? " ↓" : " ↑" : ""));
    });
    body.replaceChildren(view);
  };
  const draw = () => {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    const textOf = i => (bundles[i].run.name + " " + bundles[i].run.state + " " + [...settings[i]].map(([k, v]) => `${k}=${v}`).join(" ")).toLowerCase();
    const shown = bundles.map((_, i) => i).filter(i => words.every(word => textOf(i).includes(word)));
    drawTable(shown);
    plot.draw(shown.map(i => ({name: bundles[i].run.name, color: color(i), marks: pick.value !== "train/loss", points: pointsOfPick(bundles[i])})));
    chartCard.value.textContent = shown.length < total ? `${shown.length} of ${total} runs` : "";
  };
  const tableCard = card("Runs and settings that differ", "wide", body);
  tableCard.head.append(filter);
  const chartCard = card("Comparison", "wide", plot.element);
  chartCard.head.append(pick, plot.logButton(() => draw()));
  return {element: h("div", {class: "grid"}, tableCard, chartCard), draw};
}
function runList(runs, current, compared, onOpen, onCompare) {
  const list = card("Runs", "wide", table([onCompare ? "compare" : "", "<run", "<state", "step", "loss", "<best", "since", "<reason"], runs.map(run => attempt(() => [
    onCompare ? h("input", {type: "checkbox", checked: compared.has(run.name), "aria-label": "Compare " + run.name, onchange: e => onCompare(run.name, e.target.checked)}) : "",
    h("td", {class: "left"}, h("button", {type: "button", onclick: () => onOpen(run.name)}, run.name)), h("td", {class: "left"}, h("span", {class: "state " + ({good: "good", attention: "warn", bad: "bad"}[run.health] || "")}, run.state)),
    count(run.step), format(run.loss), h("td", {class: "left"}, run.best ? `${run.best.dataset} ${words(run.best.metric)} ${format(run.best.value)} at ${count(run.best.step)}` : "–"),
    h("td", {title: text(run.since)}, run.since ? age(run.since) : "–"), h("td", {class: "cut left", title: text(run.reason)}, text(run.reason))],
    reason => ["", h("td", {class: "left"}, text(run && run.name)), h("td", {class: "left"}, reason)])),
    "Runs", runs.map(run => run && run.name === current ? {"aria-current": "true"} : null)));
  return h("nav", {class: "grid list", "aria-label": "Runs"}, list);
}

// ---- Report

function showReport() {
  const bundles = report.runs;
  const holder = h("div"), top = h("div");
  const open = name => {
    const bundle = bundles.find(b => b.run.name === name) || bundles[0];
    const page = new RunPage(bundle, artifact => bundle.artifacts[artifact]);
    holder.replaceChildren(page.element);
    page.show();
    if (bundles.length > 1) top.replaceChildren(runList(bundles.map(b => b.run), bundle.run.name, new Set(), open, null));
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
  open(bundles[0].run.name);
  app.append(h("p", {class: "where"}, "Report of " + timestamp(report.created_at) + " UTC"));
  return () => { if (compare) compare.draw(); };
}

// ---- Live

function showLive() {
  let page = null, source = null, runs = [], current = null, redraw = 0, lastOpen = 0, lastCompare = 0;
  const compared = new Set(), missing = h("div"), top = h("div"), holder = h("div"), compareHolder = h("div");
  app.replaceChildren(missing, top, compareHolder, holder);
  const fail = error => { if (!page) holder.replaceChildren(h("p", {class: "empty"}, "Cannot read the run: " + error.message)); };
  const artifactUrl = name => artifact => "/v1/artifacts/" + encodeURIComponent(artifact) + (name ? "?run=" + encodeURIComponent(name) : "");
  const schedule = () => { if (!redraw) redraw = setTimeout(() => { redraw = 0; if (page && !document.hidden) page.drawCurves(); }, 1500); };
  document.addEventListener("visibilitychange", () => { if (!document.hidden && page) { page.drawHeader(); page.drawNow(); page.drawCurves(); } });

  async function open(name) {
    current = name;
    const id = ++lastOpen, waiting = [];  // events that arrive while the run is read
    let isLoading = 0;
    const load = async () => {
      ++isLoading;
      try {
        const [run, curves] = await Promise.all([get("/v1/run", name), get("/v1/curves", name)]);
        if (id !== lastOpen) return;
        if (page) {
          page.run = run;
          page.curves = curves;
          page.offline = null;
          page.drawHeader();
          page.drawRun();
          page.drawCurves();
          page.drawLog(run.log);
        } else {
          page = new RunPage({run, curves}, artifactUrl(name));
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
        if (page && !page.offline) { page.offline = new Date().toLocaleTimeString(); page.drawHeader(); }
        // After an answer other than 200, the browser does not try again.
        if (mine.readyState === EventSource.CLOSED) setTimeout(() => { if (mine === source) connect(); }, 5000);
      };
      mine.onopen = () => { if (page ? page.offline : !isLoading) load().catch(fail); };
    };
    connect();
    await load().catch(fail);
  }
  async function compare() {
    const id = ++lastCompare;
    if (compared.size < 2) return compareHolder.replaceChildren();
    const read = async name => ({run: await get("/v1/run", name), curves: await get("/v1/curves", name)});
    const bundles = (await Promise.allSettled([...compared].slice(0, kMaxCompared).map(read))).flatMap(one => one.value ?? []);  // those that can be read
    if (id !== lastCompare) return;
    const view = comparison(bundles, show, compared.size);
    compareHolder.replaceChildren(view.element);
    view.draw();
  }
  function drawList() {
    if (runs.length < 2) return top.replaceChildren();
    const focused = document.activeElement && top.contains(document.activeElement) ? [...top.querySelectorAll("button, input")].indexOf(document.activeElement) : -1;
    top.replaceChildren(runList(runs, current, compared, show,
      (name, isOn) => { compared[isOn ? "add" : "delete"](name); history.replaceState(null, "", address(current)); compare().catch(fail); }));
    if (focused >= 0) [...top.querySelectorAll("button, input")][focused]?.focus();
  }
  // The view is in the address: the run that is shown, and those that are compared.
  const chosen = () => new URLSearchParams(location.hash.slice(1));
  const address = name => "#" + new URLSearchParams([["run", name], ...[...compared].map(other => ["compare", other])]);
  const show = name => { location.hash = address(name); };
  const wanted = () => runs.find(run => run.name === chosen().get("run"));
  const list = async () => {
    runs = await get("/v1/runs");
    drawList();
    if (current !== null) return;
    if (!runs.length) return holder.replaceChildren(h("p", {class: "empty"}, "No run yet"));
    for (const name of chosen().getAll("compare")) if (runs.some(run => run.name === name)) compared.add(name);
    const name = chosen().get("run");
    missing.replaceChildren(...(name && !wanted() ? [h("p", {class: "notice bad", role: "alert"}, name + ": there is no such run here; this is the newest")] : []));
    await open((wanted() || runs[0]).name);
    if (compared.size) drawList(), await compare();
  };
  window.addEventListener("hashchange", () => { const run = wanted(); missing.replaceChildren(); if (run && run.name !== current) { page = null; open(run.name).catch(fail); } });
  setInterval(() => { if (!document.hidden) list().catch(fail); }, 10000);
  list().catch(fail);
  return () => { if (page) page.drawCurves(); };
}

Chart.defaults.font.family = getComputedStyle(document.body).fontFamily;
const again = report ? showReport() : showLive();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => again());
// For the tests: what is shown, and how long drawing took in total.
window.stokerPage = {drawMs: () => drawMs};
})();
