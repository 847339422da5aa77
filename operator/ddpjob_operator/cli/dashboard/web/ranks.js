// The ranks of a job: a heat map of their step times, and a table.

import { useState } from "preact/hooks";
import { Table, duration, html } from "./pieces.js";

const GIB = 2 ** 30;
/** A rank that takes so many times as long as the others has the hottest colour. */
const HOTTEST = 2;

const COLUMNS = [
  { key: "rank", label: "Rank", value: (row) => Number.parseInt(row.ranks, 10), cell: (row) => row.ranks },
  { key: "node", label: "Node", value: (row) => row.node, cell: (row) => `${row.node} ${row.nodeName}` },
  { key: "status", label: "State", cell: (row) => row.state },
  { key: "step", label: "Step", cell: (row) => row.step },
  { key: "time", label: "Step time", value: (row) => row.stepSeconds, cell: (row) => duration(row.stepSeconds) },
  { key: "own", label: "Own part", value: (row) => row.ownSeconds, cell: (row) => duration(row.ownSeconds) },
  { key: "slowdown", label: "Slowdown", value: (row) => row.slowdown, cell: (row) => (row.slowdown === null ? "" : `${row.slowdown} x`) },
  { key: "memory", label: "Memory", value: (row) => row.memoryBytes, cell: (row) => (row.memoryBytes === null ? "" : `${(row.memoryBytes / GIB).toFixed(1)} GiB`) },
  { key: "does", label: "Does", cell: (row) => [row.activity.toLowerCase(), row.slowed, row.transport].filter(Boolean).join(", ") },
];

function median(values) {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted.length ? sorted[sorted.length >> 1] : null;
}

export function Ranks({ ranks, slowest }) {
  const [pointed, setPointed] = useState(null), [sort, setSort] = useState({ key: "", down: false });
  if (!ranks.length) return html`<p>Nothing runs.</p>`;
  // All ranks wait for the slowest one, so only the own part of a step tells them apart.
  const seconds = (row) => row.ownSeconds ?? row.stepSeconds;
  const usual = median(ranks.map(seconds).filter((value) => value !== null));
  const heat = (row) => {
    const factor = row.slowdown ?? (usual && seconds(row) !== null ? seconds(row) / usual : null);
    return factor === null ? null : Math.max(0, Math.min(1, (factor - 1) / (HOTTEST - 1)));
  };
  const say = (row) => `rank ${row.ranks} on node ${row.node} ${row.nodeName}: ${[
    seconds(row) === null ? "its step time is unknown" : duration(seconds(row)),
    row.slowdown && `${row.slowdown} x the usual time`].filter(Boolean).join(", ")}`;
  const cell = (row, at) => {
    const warm = heat(row);
    return html`<i key=${row.ranks} data-at=${at} class=${warm === null ? "unknown" : ""}
      style=${{ background: warm === null ? "" : `color-mix(in oklab, var(--hot) ${Math.round(warm * 100)}%, var(--cool))` }}></i>`;
  };
  const summary = slowest ? `Slowest: ${slowest}` : "No rank is known to be slower than the others.";
  const point = (event) => setPointed(ranks[event.target.dataset?.at] ?? null);
  return html`<div class="ranks">
    <p>${summary}</p>
    <div class="heat" role="img" aria-label=${`Step times of ${ranks.length} ranks or nodes. ${summary}`}
      onPointerOver=${point} onPointerLeave=${() => setPointed(null)}>${ranks.map(cell)}</div>
    <p class="soft">${pointed ? say(pointed) : html`<span class="scale" aria-hidden="true"></span> as usual … ${HOTTEST} x as long`}</p>
    <${Table} columns=${COLUMNS} rows=${ranks} label="Ranks" sort=${sort} onSort=${setSort} id=${(row) => row.ranks} />
  </div>`;
}
