// What several pages are made of. Texts of others become text nodes only; the server forbids all else by its policy.

import { h } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import htm from "htm";
import { follow } from "./server.js";

export const html = htm.bind(h);

/** So many lines come into view together, so that a little scrolling needs none. */
const STRIDE = 8;

const kept = new Map();

/** As useState, but the value is still there when the page is shown again. */
export function useKept(name, first) {
  const [value, setValue] = useState(kept.has(name) ? kept.get(name) : first);
  return [value, (next) => {
    kept.set(name, next);
    setValue(next);
  }];
}

/** The title of the window, and the heading of the page. Whoever came by a key or a link goes on from the heading. */
export function Heading({ title = "", children }) {
  const heading = useRef();
  useEffect(() => {
    if (document.activeElement === document.body) heading.current.focus({ preventScroll: true });
  }, []);
  useEffect(() => {
    document.title = title ? `${title} - DDPJob` : "DDPJob";
  }, [title]);
  return html`<h1 ref=${heading} tabindex="-1">${children}</h1>`;
}

/** Copies what `text()` gives. */
export function Copy({ text }) {
  const [said, setSaid] = useState("");
  const say = (word) => {
    setSaid(word);
    setTimeout(() => setSaid(""), 2000);
  };
  return html`<button onClick=${() => navigator.clipboard.writeText(text()).then(() => say("Copied"), () => say("Not copied"))}>
    <span aria-live="polite">${said || "Copy"}</span></button>`;
}

/** What a stream tells, as [a Map by name, why nothing is told]; the Map is undefined until the first event. */
export function useStream(path) {
  const [told, setTold] = useState({});
  useEffect(() => {
    setTold({});
    let state = new Map();
    return follow(path, ({ put, gone }, first) => {
      state = new Map(first ? [] : state);
      for (const name of gone) state.delete(name);
      for (const name in put) state.set(name, put[name]);
      setTold({ state });
    }, (trouble) => setTold((before) => ({ ...before, trouble })));
  }, [path]);
  return [told.state, told.trouble];
}

/**
 * Only the lines of a long list that can be seen, between two empty spaces. `line(item)` is one of `height` pixels;
 * `wrap` puts them into a table or another element. While `stick` is true, the end of the list stays in view.
 */
export function Long({ items, height, line, wrap, label, stick, name }) {
  const box = useRef(), [at, setAt] = useKept(`scrolled ${name ?? ""}`, 0), [view, setView] = useState({ first: 0, count: 40 });
  const look = () => {
    if (!box.current) return;  // The page has changed, and only now the browser tells that the list was scrolled.
    const { scrollTop, clientHeight } = box.current;
    const first = Math.max(0, Math.floor(scrollTop / height / STRIDE) - 1) * STRIDE;
    const count = Math.ceil(clientHeight / height) + 3 * STRIDE;
    setView((before) => (before.first === first && before.count === count ? before : { first, count }));
  };
  useLayoutEffect(() => {
    const observer = new ResizeObserver(look);
    observer.observe(box.current);
    if (name) box.current.scrollTop = at;
    return () => observer.disconnect();
  }, []);
  useLayoutEffect(() => {
    if (stick) box.current.scrollTop = items.length * height;
    look();
  }, [items, stick]);
  const first = Math.max(0, Math.min(view.first, items.length - view.count));
  const seen = items.slice(first, first + view.count);
  const before = first * height, after = Math.max(0, items.length - first - seen.length) * height;
  return html`<div class="long" ref=${box} onScroll=${look} onScrollEnd=${() => name && box.current && setAt(box.current.scrollTop)} tabindex="0" role="region" aria-label=${label}>
    ${wrap(before, seen.map((item, at) => line(item, first + at)), after)}
  </div>`;
}

/** A table of many rows that a click on a heading sorts. A column: key, label, cell, and value if it differs. */
export function Table({ columns, rows, label, sort, onSort, id, name }) {
  const { key, down } = sort, column = columns.find((one) => one.key === key);
  const value = column && (column.value ?? column.cell);
  const sorted = value ? [...rows].sort((a, b) => (down ? -1 : 1) * compare(value(a), value(b), down)) : rows;
  const heading = (one) => html`<th class=${one.key} scope="col"
      aria-sort=${one.key === key ? (down ? "descending" : "ascending") : "none"}>
    ${one.plain ? html`<span class="unseen">${one.label}</span>`
      : html`<button onClick=${() => onSort({ key: one.key, down: one.key === key && !down })}>${one.label}
          <span aria-hidden="true">${one.key === key ? (down ? " ↓" : " ↑") : ""}</span></button>`}
  </th>`;
  const wrap = (before, lines, after) => html`<table aria-rowcount=${rows.length + 1}>
    <thead><tr>${columns.map(heading)}</tr></thead>
    <tbody><tr aria-hidden="true" class="gap" style=${{ height: `${before}px` }}></tr>${lines}
      <tr aria-hidden="true" class="gap" style=${{ height: `${after}px` }}></tr></tbody>
  </table>`;
  // While somebody scrolls, only lines that come into view are made: one that is the same object is not compared.
  const made = new Map();
  const line = (row, at) => {
    if (!made.has(row)) {
      made.set(row, html`<tr key=${id(row)} aria-rowindex=${at + 2}>
        ${columns.map((one) => html`<td class=${one.key}>${one.cell(row)}</td>`)}</tr>`);
    }
    return made.get(row);
  };
  return html`<${Long} items=${sorted} height=${34} line=${line} wrap=${wrap} label=${label} name=${name} />`;
}

/** The order of two values; one that is unknown comes last, whichever way it is sorted. */
function compare(a, b, down) {
  const none = (value) => value === null || value === undefined || value === "" || Number.isNaN(value);
  if (none(a) || none(b)) return (none(a) - none(b)) * (down ? -1 : 1);
  return typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true });
}

export function duration(seconds) {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return "";
  if (seconds < 0.1) return `${(seconds * 1000).toPrecision(2)} ms`;
  if (seconds < 100) return `${Number(seconds.toPrecision(2))} s`;
  const whole = Math.round(seconds), parts = [["d", 86400], ["h", 3600], ["m", 60], ["s", 1]];
  const at = parts.findIndex(([, size]) => whole >= size), [unit, size] = parts[at], next = parts[at + 1];
  const rest = next ? Math.floor((whole % size) / next[1]) : 0;
  return `${Math.floor(whole / size)}${unit}${rest ? `${rest}${next[0]}` : ""}`;
}

export const age = (made) => (made === null ? "" : duration(Math.max(0.1, Math.round(Date.now() / 1000 - made))));

export const State = ({ state }) => html`<span class=${`state ${/^\w+$/.test(state) ? state : ""}`}>${state}</span>`;

export const jobLink = (id, tab = "") => `#/job/${encodeURIComponent(id)}${tab && `/${tab}`}`;

export const where = (row) => (row.origin === "cluster" ? row.namespace : row.origin);
