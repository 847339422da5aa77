// The logs of all ranks, as `ddpjob logs --follow` prints them.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { Copy, Long, html } from "./pieces.js";
import { follow } from "./server.js";

const MOST_LINES = 20000;
/** What a line has that tells of a failure. */
const BAD = /error|exception|traceback|killed|\bnan\b/i;

export function Logs({ id }) {
  const [lines, setLines] = useState(null), [trouble, setTrouble] = useState(""), [over, setOver] = useState(false);
  const [words, setWords] = useState(""), [attempt, setAttempt] = useState(""), [stick, setStick] = useState(true);
  const buffer = useRef([]);
  useEffect(() => {
    buffer.current = [];
    setLines(null);
    setOver(false);
    const query = new URLSearchParams(attempt ? { id, attempt } : { id });
    return follow(`/api/logs?${query}`, (event, first) => {
      if (first) buffer.current = [];
      if (event.lines) buffer.current = buffer.current.concat(event.lines).slice(-MOST_LINES);
      else setOver(true);
      setLines(buffer.current);
    }, setTrouble, false);
  }, [id, attempt]);
  const wanted = words.toLowerCase();
  const found = useMemo(() => (lines ?? []).filter((line) => !wanted || line.toLowerCase().includes(wanted)), [lines, wanted]);
  const line = (text, at) => html`<div key=${at} class=${BAD.test(text) ? "line problem" : "line"}>${text}</div>`;
  const wrap = (before, shown, after) => html`<div style=${{ paddingTop: `${before}px`, paddingBottom: `${after}px` }}>${shown}</div>`;
  return html`<div class="logs">
    <div class="tools">
      <input type="search" placeholder="Search (/)" aria-label="Search the logs" value=${words} onInput=${(event) => setWords(event.target.value)} />
      <label>attempt <input class="short" inputmode="numeric" pattern="[0-9]*" value=${attempt} placeholder="last"
        onChange=${(event) => setAttempt(event.target.value.replace(/\D/g, ""))} /></label>
      <label><input type="checkbox" checked=${stick} onChange=${() => setStick(!stick)} /> follow</label>
      <${Copy} text=${() => found.join("\n")} />
      <span class="soft" role="status">${lines === null ? "Reading …" : `${found.length.toLocaleString("en")} lines${over ? ", ended" : ""}`}</span>
    </div>
    ${trouble && html`<p class="problem" role="alert">${trouble}</p>`}
    <${Long} items=${found} height=${20} line=${line} wrap=${wrap} label="Logs" stick=${stick} />
  </div>`;
}
