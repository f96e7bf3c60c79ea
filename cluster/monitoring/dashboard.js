"use strict";
// Shows the dashboards of the table in #table. What comes from the cluster reaches the page as text alone.
const { cluster, stack, interval, dashboards, colours, dashes } = JSON.parse(document.getElementById("table").textContent);
// The right margin has room for half of a time, so that each stands below its tick.
const [$, WIDTH, HEIGHT, LEFT, RIGHT, BOTTOM, TOP] = [(query) => document.querySelector(query), 560, 230, 62, 20, 40, 20];
const REFRESH = Math.max(interval, 30), POINTS = 240, BARS = 20;
const state = { dashboard: dashboards[0], nodes: ".*", job: null, round: 0 };

function make(name, attributes = {}, ...children) {
  const drawn = ["svg", "path", "line", "circle", "text", "title"].includes(name);
  const made = drawn ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

// A name as its reader sees it: what turns text around or has no width is written out.
function visible(name) {
  const hidden = /[\0-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g;
  return String(name).replace(hidden, (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

// ---- values and units

const SCALES = {
  share: [[0.01, "%"]],
  bytes: ["B", "KiB", "MiB", "GiB", "TiB", "PiB"].map((name, at) => [1024 ** at, name]),
  "bytes/s": ["B/s", "KiB/s", "MiB/s", "GiB/s", "TiB/s"].map((name, at) => [1024 ** at, name]),
  seconds: [[1e-6, "µs"], [1e-3, "ms"], [1, "s"], [60, "min"], [3600, "h"], [86400, "d"]],
  watts: [[1, "W"], [1e3, "kW"], [1e6, "MW"]],
};

function scaled(unit, most) {
  const scales = SCALES[unit] ?? [[1, unit]];
  const [factor, name] = scales.findLast(([size]) => most >= size) ?? scales[unit === "seconds" ? 2 : 0];
  return { factor, name, text: (value) => number(value / factor) };
}

// 1 job, 2 jobs.
const counted = (count, things) => `${number(count)} ${things.slice(0, count === 1 ? -1 : undefined)}`;

function number(value) {
  return Number(Math.abs(value) >= 1000 ? value.toFixed(0) : value.toPrecision(3)).toLocaleString("en", { maximumFractionDigits: 6 });
}

const digits = (value) => String(value).padStart(2, "0");
function clock(seconds, day = false) {
  const at = new Date(seconds * 1000), date = `${at.getFullYear()}-${digits(at.getMonth() + 1)}-${digits(at.getDate())}`;
  return (day ? `${date} ` : "") + `${digits(at.getHours())}:${digits(at.getMinutes())}`;
}

// ---- questions

function range() {
  const now = Date.now() / 1000, job = state.job, span = Number($("#span").value);
  const [start, end] = job ? [job.started - 60, Math.min((job.ended ?? now) + 60, now)] : [now - span, now];
  const step = Math.max(interval, Math.ceil((end - start) / POINTS));
  return { start: Math.floor(start / step) * step, end: Math.ceil(end / step) * step, now: end, step };
}

async function get(path, given) {
  let answer = null;
  for (let left = 3; left && !answer; left--) {
    // A browser ends its requests when a network of its machine comes or goes.
    answer = await fetch(`${path}?${new URLSearchParams(given)}`).catch(() => new Promise((done) => setTimeout(done, 300)));
  }
  if (!answer) throw new Error(`./hpc dashboard ${stack} has ended on this machine: start it again.`);
  const found = await answer.json().catch(() => ({ error: `no answer in JSON, status ${answer.status}` }));
  if (!answer.ok) throw Object.assign(new Error(found.error), { away: answer.status === 502 });
  return found;
}

async function series(panel, when) {
  const now = panel.kind !== "lines", seconds = Math.max(4 * interval, when.step);
  const found = await Promise.all(panel.queries.map(async ([expression, legend]) => {
    const job = state.job?.number ?? ".*";
    const query = expression.replaceAll("$nodes", state.nodes).replaceAll("$job", job).replaceAll("$__rate_interval", `${seconds}s`);
    const given = now ? { query, time: when.now } : { query, start: when.start, end: when.end, step: when.step };
    const rows = (await get(now ? "api/v1/query" : "api/v1/query_range", given)).data.result;
    return rows.map(({ metric, value, values }) => ({
      name: legend.replace(/\{\{(\w+)\}\}/g, (_, label) => visible(metric[label] ?? "none")),
      points: (values ?? [value]).map(([time, text]) => [time, Number(text)]).filter((point) => Number.isFinite(point[1])),
    }));
  }));
  return found.flat().filter((curve) => curve.points.length);
}

// ---- panels

function drawValue(panel, [curve]) {
  const scale = scaled(panel.unit, curve.points[0][1]), text = scale.text(curve.points[0][1]);
  const unit = SCALES[panel.unit] ? scale.name : counted(curve.points[0][1], scale.name).slice(text.length + 1);
  return [make("p", { class: "value" }, text, make("small", {}, ` ${unit}`))];
}

function drawBars(panel, all) {
  all.sort((curve, other) => other.points[0][1] - curve.points[0][1]);
  const most = panel.unit === "share" ? 1 : Math.max(...all.map((curve) => curve.points[0][1]), 0), scale = scaled(panel.unit, most);
  const table = (rows) => make("table", { class: "bars" },
    make("thead", {}, make("tr", {}, ...["name", "", panel.unit === "share" ? "%" : scale.name].map((text) => make(text ? "th" : "td", text ? { scope: "col" } : {}, text)))),
    make("tbody", {}, ...rows.map((curve) => {
      const bar = make("div", curve.points[0][1] > 0 ? { class: "bar" } : {});
      bar.style.width = `${Math.max(0, Math.min(100, (100 * curve.points[0][1]) / (most || 1)))}%`;
      return make("tr", {}, make("th", { scope: "row" }, curve.name), make("td", {}, bar), make("td", {}, scale.text(curve.points[0][1])));
    })));
  const rest = all.slice(BARS);
  return [table(all.slice(0, BARS)), ...(rest.length ? [folded(`${rest.length} more`, panel, () => table(rest))] : [])];
}

function folded(title, panel, content) {
  const place = make("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": `${panel.title}: ${title}` });
  const details = make("details", {}, make("summary", {}, title), place);
  details.addEventListener("toggle", () => place.replaceChildren(...(details.open ? [content()] : [])));
  return details;
}

function ticks(most, whole) {
  const rough = Math.max(most || 1, whole ? 1 : 1e-12) / 4, unit = 10 ** Math.floor(Math.log10(rough));
  const step = Math.max([1, 2, 2.5, 5, 10].find((factor) => factor * unit >= rough * 0.999) * unit, whole ? 1 : 0);
  return Array.from({ length: Math.max(Math.ceil(most / step - 1e-9), most || whole ? 1 : 4) + 1 }, (_, at) => at * step);
}

function stroke(at) {
  return { stroke: `var(--series-${at % colours})`, "stroke-dasharray": dashes[at % dashes.length].join(" ") };
}

function drawLines(panel, all, { start, end, step }) {
  const last = (curve) => curve.points.at(-1)[1];
  const mean = (curve) => curve.points.reduce((sum, point) => sum + point[1], 0) / curve.points.length;
  const named = panel.queries.length > 1 || !panel.queries[0][1].includes("{{");
  if (!named) all.sort((curve, other) => mean(other) - mean(curve) || curve.name.localeCompare(other.name));
  // Of machines and their GPUs the least are drawn too: one that waits holds up its job.
  const least = state.dashboard.of_nodes && all.length > colours ? Math.floor(colours / 2) : 0;
  const shown = [...all.slice(0, colours - least), ...all.slice(all.length - least)], values = shown.flatMap((curve) => curve.points.map((point) => point[1]));
  const scale = scaled(panel.unit, Math.max(...values, 0)), whole = !SCALES[panel.unit] && values.every(Number.isInteger);
  const rows = ticks(Math.max(...values, 0) / scale.factor, whole), top = rows.at(-1) * scale.factor || 1;
  const low = Math.min(...values, 0);
  const x = (time) => LEFT + ((time - start) / (end - start)) * (WIDTH - LEFT - RIGHT);
  const y = (value) => HEIGHT - BOTTOM - ((value - low) / (top - low)) * (HEIGHT - BOTTOM - TOP);
  const svg = make("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img" });
  svg.setAttribute("aria-label", `${panel.title}, ${scale.name}, from ${clock(start, true)} to ${clock(end, true)}: ` +
    shown.map((curve) => `${curve.name} ${scale.text(last(curve))}`).join(", "));
  const text = (at, to, words, anchor) => svg.append(make("text", { x: at, y: to, "text-anchor": anchor }, words));
  for (const row of rows) {
    const to = y(row * scale.factor);
    svg.append(make("line", { class: row ? "grid" : "axis", x1: LEFT, x2: WIDTH - RIGHT, y1: to, y2: to }));
    text(LEFT - 6, to + 4, number(row), "end");
  }
  text(2, 11, scale.name, "start");
  const every = [60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 432000].find((seconds) => (end - start) / seconds <= 7) ?? 864000;
  const offset = new Date(start * 1000).getTimezoneOffset() * 60;
  for (let time = Math.ceil((start - offset) / every) * every + offset; time <= end; time += every) {
    svg.append(make("line", { class: "axis", x1: x(time), x2: x(time), y1: HEIGHT - BOTTOM, y2: HEIGHT - BOTTOM + 5 }));
    text(x(time), HEIGHT - BOTTOM + 18, every < 86400 ? clock(time) : clock(time, true).slice(5, 10), "middle");
  }
  text((LEFT + WIDTH) / 2, HEIGHT - 5, every < 86400 ? "local time" : "day (month-day)", "middle");
  shown.forEach((curve, at) => {
    let path = "", before = -Infinity;
    curve.points.forEach(([time, value], place) => {
      const apart = time - before > 1.5 * step, alone = apart && !(curve.points[place + 1]?.[0] - time <= 1.5 * step);
      if (alone) svg.append(make("circle", { cx: x(time), cy: y(value), r: 2.5, fill: stroke(at).stroke }));
      path += `${apart ? "M" : "L"}${x(time).toFixed(1)} ${y(value).toFixed(1)}`;
      before = time;
    });
    svg.append(make("path", { class: "curve", d: path, ...stroke(at) }));
  });
  return [svg, ...legend(panel, shown, scale, svg, x, { start, end, step }), ...more(panel, all, shown, least, scale)];
}

// The values at one moment, which the pointer or the arrow keys choose.
function legend(panel, shown, scale, svg, x, { start, end, step }) {
  const times = Math.round((end - start) / step), figures = shown.map(() => make("b"));
  const slider = make("input", { type: "range", class: "moment", min: 0, max: times, value: times, "aria-label": `Moment in ${panel.title}` });
  const when = make("li", { class: "when" }), cursor = make("line", { class: "cursor", y1: TOP, y2: HEIGHT - BOTTOM, visibility: "hidden" });
  svg.append(cursor);
  const at = (curve, time) => curve.points.findLast((point) => point[0] <= time + step / 2 && point[0] > time - 1.5 * step)?.[1];
  const show = (chosen) => {
    const place = Number(slider.value), time = start + place * step;
    const values = shown.map((curve) => (chosen ? at(curve, time) : curve.points.at(-1)[1]));
    values.forEach((value, row) => (figures[row].textContent = value === undefined ? "–" : scale.text(value)));
    when.textContent = chosen ? `at ${clock(time, end - start > 86400)}, ${scale.name}:` : `last, ${scale.name}:`;
    for (const side of ["x1", "x2"]) cursor.setAttribute(side, x(time));
    cursor.setAttribute("visibility", chosen ? "visible" : "hidden");
    slider.setAttribute("aria-valuetext", `${clock(time, true)}: ${shown.map((curve, row) => `${curve.name} ${figures[row].textContent}`).join(", ")} ${scale.name}`);
  };
  slider.addEventListener("input", () => show(true));
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect(), to = ((event.clientX - box.left) / box.width) * WIDTH;
    slider.value = Math.round(((to - LEFT) / (WIDTH - LEFT - RIGHT)) * times);
    show(true);
  });
  svg.addEventListener("pointerleave", () => show(false));
  show(false);
  const sample = (row) => make("svg", { viewBox: "0 0 28 10", "aria-hidden": "true" }, make("line", { x1: 0, x2: 28, y1: 5, y2: 5, "stroke-width": 2.5, ...stroke(row) }));
  return [slider, make("ul", { class: "legend" }, when, ...shown.map((curve, row) => make("li", {}, sample(row), ` ${curve.name} `, figures[row])))];
}

function more(panel, all, shown, least, scale) {
  const table = () => {
    const times = [...new Set(all.flatMap((curve) => curve.points.map((point) => point[0])))].sort((time, later) => later - time);
    const known = all.map((curve) => new Map(curve.points));
    return make("table", { class: "data" },
      make("caption", {}, `${panel.title}, ${scale.name}`),
      make("thead", {}, make("tr", {}, ...["time", ...all.map((curve) => curve.name)].map((name) => make("th", { scope: "col" }, name)))),
      make("tbody", {}, ...times.map((time) => make("tr", {}, make("th", { scope: "row" }, clock(time, true)),
        ...known.map((curve) => make("td", {}, curve.has(time) ? scale.text(curve.get(time)) : "–"))))));
  };
  const rest = all.length - shown.length;
  const drawn = `${shown.length - least} greatest${least ? ` and the ${least} least` : ""} on average`;
  const note = rest ? [make("p", { class: "note" }, `The ${drawn} are drawn; all ${all.length} are in the table.`)] : [];
  return [...note, folded("Data", panel, table)];
}

function draw(panel, place, all, when) {
  const kept = place.querySelector("details[open] summary")?.textContent, at = place.querySelector(".moment") === document.activeElement;
  if (at) return; // somebody reads it with the arrow keys
  const nothing = () => [make("p", { class: "note" }, panel.none || `No data${panel.needs ? `: this needs ${panel.needs}.` : " at this time."}`)];
  const drawn = all.length ? { value: drawValue, bars: drawBars, lines: drawLines }[panel.kind](panel, all, when) : nothing();
  place.replaceChildren(place.firstElementChild, ...drawn);
  for (const details of place.querySelectorAll("details")) details.open = details.firstChild.textContent === kept;
}

// ---- the page

function say(text, bad = false) {
  $("#status").textContent = text;
  $("#status").classList.toggle("bad", bad);
}

async function refresh() {
  const round = ++state.round, when = range(), places = state.places;
  // Curves of each machine are for a few of them.
  if (state.dashboard.name === "job" && state.nodes === ".*") return say("Give a job's number, or machines.");
  const errors = (await Promise.all(state.dashboard.panels.map(async (panel, at) => {
    try {
      const found = await series(panel, when);
      if (round === state.round) draw(panel, places[at], found, when);
    } catch (error) {
      return error;
    }
  }))).filter(Boolean);
  if (round !== state.round) return;
  performance.mark("drawn");
  const job = state.job ? `Job ${state.job.id}, ${visible(state.job.name)}, of ${state.job.user}: ${state.job.state}, ${counted(state.job.nodes.length, "nodes")}, ${clock(when.start, true)} to ${clock(when.end, true)}. ` : "";
  if (!errors.length) say(`${job}Read at ${clock(Date.now() / 1000)}, again every ${REFRESH} s.`);
  else if (errors[0].away) say(`${errors[0].message}: what is shown is old. What still works: ./hpc status ${stack}, ./hpc nodes ${stack}, ./hpc job ${stack} ID. This page asks again every ${REFRESH} s.`, true);
  else say(errors[0].message, true);
}

function build() {
  const { title, panels, of_nodes } = state.dashboard;
  document.title = `${title} - ${cluster}`;
  $("h1").textContent = cluster;
  $("h2").textContent = title;
  $("#machines").hidden = !of_nodes;
  $("nav ul").replaceChildren(...dashboards.map((dashboard) => make("li", {}, make("a", { href: `#${dashboard.name}`, ...(dashboard === state.dashboard ? { "aria-current": "page" } : {}) }, dashboard.title))));
  const sections = panels.map((panel) => make("section", { class: "panel", "aria-label": panel.title }, make("h3", {}, panel.title)));
  const values = sections.filter((_, at) => panels[at].kind === "value");
  const others = sections.filter((_, at) => panels[at].kind !== "value");
  $("main>div").replaceChildren(...(values.length ? [make("div", { class: "values" }, ...values)] : []), ...others);
  state.places = sections;
}

async function choose() {
  let wanted = location.hash.slice(1);
  try { wanted = decodeURIComponent(wanted); } catch { /* a % of its own */ }
  const [name, number] = wanted.split("=");
  const found = dashboards.find((dashboard) => dashboard.name === name);
  if (!found && name) return; // the link that skips to the panels
  state.dashboard = found ?? dashboards[0];
  state.job = null;
  const names = $("#nodes").value.split(/[\s,]+/).filter((name) => /^[\w.*-]+$/.test(name));
  const any = (name) => name.replaceAll(".", "[.]").replaceAll("*", ".*");
  state.nodes = names.length ? `(${any(cluster)}-)?(${names.map(any).join("|")})` : ".*";
  build();
  say("Reading ...");
  $("#job").value = number ?? "";
  if (number) {
    say(`Asking slurmctld for job ${number} ...`);
    try {
      state.job = await get("job", { id: number });
      state.nodes = [...state.job.nodes, ...state.job.hosts ?? []].map(any).join("|");
    } catch (error) {
      return say(error.message, true);
    }
  }
  $("#span").parentElement.hidden = Boolean(state.job);
  await refresh();
}

addEventListener("hashchange", choose);
$("form").addEventListener("submit", (event) => {
  event.preventDefault();
  const job = $("#job").value.trim(), wanted = job ? `#job=${encodeURIComponent(job)}` : `#${state.dashboard.name}`;
  if (location.hash === wanted) choose();
  else location.hash = wanted;
});
$("#span").addEventListener("change", refresh);
setInterval(() => { if (!document.hidden) refresh(); }, REFRESH * 1000);
choose();
