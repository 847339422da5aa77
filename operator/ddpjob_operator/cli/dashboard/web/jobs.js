// All jobs.

import { Heading, State, Table, age, html, jobLink, useKept, useStream, where } from "./pieces.js";

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
  { key: "ended", label: "Ended", value: (row) => row.ended && -row.ended, cell: (row) => age(row.ended) },
  { key: "why", label: "Why", value: (row) => row.why,
    cell: (row) => html`<span class=${row.trouble ? "problem" : ""} title=${row.why || row.message}>${row.why}</span>` },
];

/** Unfinished jobs first, the newest first; then what ended, the last first. */
const moment = (row) => row.ended ?? row.made ?? 0;
const newestFirst = (a, b) => a.finished - b.finished || moment(b) - moment(a) || a.name.localeCompare(b.name);

/** How many jobs there are in each state, trouble first. */
function told(rows) {
  const found = new Map();
  for (const { state, trouble } of rows) found.set(state, { state, trouble, count: (found.get(state)?.count ?? 0) + 1 });
  const states = [...found.values()].sort((a, b) => b.trouble - a.trouble || b.count - a.count).slice(0, 6);
  return { all: `${rows.length} ${rows.length === 1 ? "job" : "jobs"}`, states };
}

export function Jobs() {
  const [state, trouble] = useStream("/api/watch");
  const [words, setWords] = useKept("words", ""), [only, setOnly] = useKept("only", "");
  const [toLookAt, setToLookAt] = useKept("toLookAt", false);
  const [sort, setSort] = useKept("sort", { key: "", down: false }), [chosen, setChosen] = useKept("chosen", []);
  if (!state) return html`<p role="status">${trouble || "Reading …"}</p>`;
  const rows = [...state].filter(([name]) => name !== "problems").map(([, row]) => row).sort(newestFirst);
  const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
  const matches = (row) => {
    const text = `${row.name} ${where(row)} ${row.state} ${row.why} ${row.message}`.toLowerCase();
    return (!only || row.state === only) && (!toLookAt || row.needsALook) && wanted.every((word) => text.includes(word));
  };
  const shown = rows.filter(matches), { all, states } = told(rows);
  const choose = (id) => setChosen(chosen.includes(id) ? chosen.filter((one) => one !== id) : [...chosen, id].slice(-MOST_COMPARED));
  const choice = { key: "choice", label: "Compare", plain: true, cell: (row) => html`<input type="checkbox"
    aria-label=${`compare ${row.name}`} checked=${chosen.includes(row.id)} onChange=${() => choose(row.id)} />` };
  const needy = rows.filter((row) => row.needsALook).length;
  const problems = [trouble, ...(state.get("problems") ?? [])].filter(Boolean);
  return html`<div class="jobs">
    <div class="tools">
      <${Heading} title=${states.length ? states.map(({ state, count }) => `${count} ${state}`).join(", ") : all}>${all}</${Heading}>
      ${(needy > 0 || toLookAt) && html`<button class="chip" aria-pressed=${toLookAt}
          title="failed, waiting, stuck, short of nodes, restarted, or with a loss that is no number"
          onClick=${() => setToLookAt(!toLookAt)}>${needy} to look at</button>`}
      ${states.map(({ state, count, trouble }) => html`<button class=${trouble ? "chip danger" : "chip"} aria-pressed=${only === state}
          onClick=${() => setOnly(only === state ? "" : state)}>${count} ${state}</button>`)}
      <input type="search" placeholder="Filter (/)" aria-label="Filter jobs" value=${words}
        onInput=${(event) => setWords(event.target.value)} />
      ${chosen.length > 1 ? html`<a class="button" href=${`#/compare/${chosen.map(encodeURIComponent).join(",")}`}>Compare ${chosen.length}</a>` : ""}
    </div>
    ${problems.map((problem) => html`<p class="problem" role="alert">${problem}</p>`)}
    ${rows.length === 0 ? html`<p>No jobs. Start one: <code>ddpjob run FILE</code></p>`
      : shown.length === 0 ? html`<p>No job matches. <button onClick=${() => { setWords(""); setOnly(""); setToLookAt(false); }}>Show all jobs</button></p>`
      : html`<${Table} columns=${[choice, ...COLUMNS]} rows=${shown} label="Jobs" sort=${sort} onSort=${setSort} id=${(row) => row.id} name="jobs" />`}
  </div>`;
}
