// One job.

import { useEffect, useState } from "preact/hooks";
import { Actions } from "./acting.js";
import { Curves } from "./curves.js";
import { Logs } from "./logs.js";
import { Copy, Heading, State, age, duration, html, jobLink, useStream, where } from "./pieces.js";
import { Ranks } from "./ranks.js";
import { get } from "./server.js";

const TABS = { "": "Job", ranks: "Ranks", curves: "Curves", logs: "Logs", yaml: "YAML", events: "Events" };

const SHOWN_ABOVE = new Set(["Name", "State"]);

/** The parts of a job in a stream's state. */
const part = (state, id) => (name) => state.get(`${id} ${name}`);

export function Job({ id, tab }) {
  const [state, trouble] = useStream(`/api/watch?${new URLSearchParams({ id })}`);
  if (!state) return html`<p role="status">${trouble || "Reading …"}</p>`;
  const of = part(state, id), row = of("row"), problem = of("problem") || trouble;
  if (!row) return html`<${Heading}>No such job</${Heading}><p class="problem" role="alert">${problem}</p>`;
  const link = ([name, label]) => html`<a href=${jobLink(id, name)} aria-current=${name === tab ? "page" : null}>${label}</a>`;
  return html`<div class="job">
    <div class="tools"><${Heading} title=${`${row.state}: ${row.name}`}>${row.name}</${Heading}><${State} state=${row.state} />
      <span class="soft">${row.ended ? `${age(row.ended)} ago, ` : ""}${where(row)}</span>
      <${Actions} id=${id} name=${row.name} acts=${of("acts") ?? []} /></div>
    ${problem && html`<p class="problem" role="alert">${problem}</p>`}
    <nav class="tabs" aria-label="Parts of the job">${Object.entries(TABS).map(link)}</nav>
    <${Part} key=${tab} id=${id} tab=${tab} of=${of} />
  </div>`;
}

function Part({ id, tab, of }) {
  if (tab === "ranks") return html`<${Ranks} ranks=${of("ranks")} slowest=${of("slowest")} />`;
  if (tab === "curves") return html`<${Curves} runs=${[runOf(of)]} />`;
  if (tab === "logs") return html`<${Logs} id=${id} />`;
  if (tab === "yaml") return html`<${Fetched} path="/api/yaml" id=${id} show=${({ text }) => html`
    <div class="tools"><${Copy} text=${() => text} /></div><pre tabindex="0" role="region" aria-label="YAML">${text}</pre>`} />`;
  if (tab === "events") return html`<${Fetched} path="/api/events" id=${id} show=${({ events }) => html`<${Events} events=${events} />`} />`;
  const { Message, Warning, Advice, ...lines } = of("lines");
  const rest = Object.entries(lines).filter(([label]) => !SHOWN_ABOVE.has(label));
  return html`<div class=${of("row").trouble ? "lead bad" : "lead"}>
      <p>${Message}</p>${Warning && html`<p class="problem">${Warning}</p>`}${Advice && html`<p><b>Advice</b>: ${Advice}</p>`}
      ${of("row").trouble && html`<p><a href=${jobLink(id, "logs")}>Read its logs</a></p>`}
    </div>
    <dl>${rest.map(([label, text]) => html`<dt>${label}</dt><dd>${text}</dd>`)}</dl>
    <${Start} parts=${of("start")} /><${Incidents} axis=${of("axis")} />`;
}

const runOf = (of) => ({ name: of("row").name, curves: of("curves"), clock: of("clock"), axis: of("axis"), noCurves: of("noCurves") });

function Fetched({ path, id, show }) {
  const [found, setFound] = useState(null), [problem, setProblem] = useState("");
  useEffect(() => {
    get(`${path}?${new URLSearchParams({ id })}`).then(setFound, (error) => setProblem(error.message));
  }, [path, id]);
  if (problem) return html`<p class="problem" role="alert">${problem}</p>`;
  return found ? show(found) : html`<p role="status">Reading …</p>`;
}

function Events({ events }) {
  if (!events.length) return html`<p>No events: Kubernetes keeps them for an hour, and only of jobs on a cluster.</p>`;
  return html`<div class="wide" tabindex="0" role="region" aria-label="Events"><table class="free"><thead><tr><th>Age</th><th>Type</th><th>Reason</th><th>Message</th></tr></thead>
    <tbody>${events.map((event) => html`<tr><td>${age(Date.parse(event.time) / 1000)}</td><td>${event.type}</td>
      <td>${event.reason}${event.count > 1 ? ` (${event.count} x)` : ""}</td><td class="text">${event.message}</td></tr>`)}</tbody></table></div>`;
}

function Start({ parts }) {
  if (!parts.length) return "";
  const longest = Math.max(...parts.map((one) => one.seconds ?? 0)) || 1;
  return html`<h2>Start of this attempt</h2><ol class="start">${parts.map((one) => html`<li>
    <span>${one.step}</span><span class="number">${one.seconds === null ? "not begun" : `${duration(one.seconds) || "0 s"}${one.over ? "" : " …"}`}</span>
    <span class="track" aria-hidden="true"><span class=${one.over ? "" : "going"} style=${{ width: `${((one.seconds ?? 0) / longest) * 100}%` }}></span></span>
  </li>`)}</ol>`;
}

function Incidents({ axis }) {
  if (!axis) return "";
  if (!axis.incidents.length) return html`<h2>Incidents</h2><p>No incidents.</p>`;
  const moment = (seconds) => new Date(seconds * 1000).toISOString().slice(0, 19).replace("T", " ");
  return html`<h2>Incidents</h2>
    <div class="axis" aria-hidden="true">${axis.incidents.map((one) => html`<b class=${one.failed ? "" : "wanted"} style=${{ left: `${one.place * 100}%` }}>${one.number}</b>`)}</div>
    <p class="ends soft"><span>${moment(axis.began)}</span><span>${moment(axis.until)} UTC</span></p>
    <ol class="incidents">${axis.incidents.map((one) => html`<li><b>${one.cause}</b>, ${age(one.time)} ago, attempt ${one.attempt}${
      one.step === null ? "" : `, after step ${one.step}`}${one.resumed === null ? "" : `, went on from step ${one.resumed}`}
      <div>${one.message}</div></li>`)}</ol>`;
}

/** The curves of several runs over each other. */
export function Comparison({ ids }) {
  const [state, trouble] = useStream(`/api/watch?${new URLSearchParams(ids.map((id) => ["id", id]))}`);
  if (!state) return html`<p role="status">${trouble || "Reading …"}</p>`;
  const parts = ids.map((id) => part(state, id)), known = parts.filter((of) => of("row"));
  const names = known.map((of) => of("row").name), twice = new Set(names).size < names.length;
  const runs = known.map((of, at) => ({ ...runOf(of), name: twice ? `${names[at]} (${at + 1})` : names[at] }));
  const problems = [trouble, ...parts.map((of) => of("problem"))].filter(Boolean);
  return html`<div><${Heading} title=${`${runs.length} jobs compared`}>Comparison</${Heading}>
    ${problems.map((problem) => html`<p class="problem" role="alert">${problem}</p>`)}
    <ul class="legend">${runs.map((run, at) => html`<li><i class=${`series-${at % 8}`}></i><a href=${jobLink(known[at]("row").id)}>${run.name}</a>
      <${State} state=${known[at]("row").state} /> ${known[at]("row").loss && `loss ${known[at]("row").loss}`}</li>`)}</ul>
    <${Curves} runs=${runs} /></div>`;
}
