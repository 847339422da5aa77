// All jobs.

import { useState } from "preact/hooks";
import { State, Table, age, html, jobLink, useStream, where } from "./pieces.js";

const MOST_COMPARED = 8;

const Progress = ({ row }) => html`${row.percent !== null && !row.finished
    ? html`<span class="bar" aria-hidden="true"><span style=${{ width: `${Math.min(100, row.percent)}%` }}></span></span>` : ""}
  <span>${row.progress}</span>`;

const COLUMNS = [
  { key: "name", label: "Name", value: (row) => row.name, cell: (row) => html`<a href=${jobLink(row.id)} title=${row.name}>${row.name}</a>` },
  { key: "where", label: "Where", cell: where },
  { key: "status", label: "State", value: (row) => row.state, cell: (row) => html`<${State} state=${row.state} />` },
  { key: "ready", label: "Ready", cell: (row) => row.ready },
  { key: "progress", label: "Progress", value: (row) => row.percent, cell: (row) => html`<${Progress} row=${row} />` },
  { key: "eta", label: "ETA", value: (row) => row.etaSeconds, cell: (row) => row.eta },
  { key: "speed", label: "Samples/s", value: (row) => row.samplesPerSecond,
    cell: (row) => row.samplesPerSecond === null ? "" : Math.round(row.samplesPerSecond).toLocaleString("en") },
  { key: "loss", label: "Loss", value: (row) => row.loss && Number(row.loss), cell: (row) => row.loss },
  { key: "restarts", label: "Restarts", value: (row) => row.restarts + row.disruptions,
    cell: (row) => `${row.restarts}${row.disruptions ? `+${row.disruptions}` : ""}` },
  { key: "goodput", label: "Goodput", value: (row) => row.goodput,
    cell: (row) => row.goodput === null ? "" : `${Math.round(row.goodput * 100)}%` },
  { key: "age", label: "Age", value: (row) => row.made && -row.made, cell: (row) => age(row.made) },
  { key: "awaits", label: "Waits for", value: (row) => row.awaits,
    cell: (row) => html`<span title=${row.awaits || row.message}>${row.awaits}</span>` },
];

/** Unfinished jobs first, and of these the newest. */
const newestFirst = (a, b) => a.finished - b.finished || (b.made ?? 0) - (a.made ?? 0) || a.name.localeCompare(b.name);

function told(rows) {
  const counts = new Map();
  for (const row of rows) counts.set(row.state, (counts.get(row.state) ?? 0) + 1);
  const states = [...counts].sort((a, b) => b[1] - a[1]).slice(0, 6);
  return { all: `${rows.length} ${rows.length === 1 ? "job" : "jobs"}`, states };
}

export function Jobs() {
  const [state, trouble] = useStream("/api/watch");
  const [words, setWords] = useState(""), [only, setOnly] = useState("");
  const [sort, setSort] = useState({ key: "", down: false }), [chosen, setChosen] = useState([]);
  if (!state) return html`<p role="status">${trouble || "Reading …"}</p>`;
  const rows = [...state].filter(([name]) => name !== "problems").map(([, row]) => row).sort(newestFirst);
  const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
  const matches = (row) => {
    const text = `${row.name} ${where(row)} ${row.state} ${row.awaits} ${row.message}`.toLowerCase();
    return (!only || row.state === only) && wanted.every((word) => text.includes(word));
  };
  const shown = rows.filter(matches), { all, states } = told(rows);
  const choose = (id) => setChosen(chosen.includes(id) ? chosen.filter((one) => one !== id) : [...chosen, id].slice(-MOST_COMPARED));
  const choice = { key: "choice", label: "Compare", plain: true, cell: (row) => html`<input type="checkbox"
    aria-label=${`compare ${row.name}`} checked=${chosen.includes(row.id)} onChange=${() => choose(row.id)} />` };
  const problems = [trouble, ...(state.get("problems") ?? [])].filter(Boolean);
  return html`<div class="jobs">
    <div class="tools">
      <h1>${all}</h1>
      ${states.map(([name, count]) => html`<button class="chip" aria-pressed=${only === name}
          onClick=${() => setOnly(only === name ? "" : name)}>${count} ${name}</button>`)}
      <input type="search" placeholder="Filter (/)" aria-label="Filter jobs" value=${words}
        onInput=${(event) => setWords(event.target.value)} />
      ${chosen.length > 1 ? html`<a class="button" href=${`#/compare/${chosen.map(encodeURIComponent).join(",")}`}>Compare ${chosen.length}</a>` : ""}
    </div>
    ${problems.map((problem) => html`<p class="problem" role="alert">${problem}</p>`)}
    ${rows.length === 0 ? html`<p>No jobs. Start one: <code>ddpjob run FILE</code></p>`
      : html`<${Table} columns=${[choice, ...COLUMNS]} rows=${shown} label="Jobs" sort=${sort} onSort=${setSort} id=${(row) => row.id} />`}
  </div>`;
}
