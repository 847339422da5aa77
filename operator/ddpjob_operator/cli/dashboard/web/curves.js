// Curves of one run or of several, drawn by uPlot.

import { useEffect, useRef, useState } from "preact/hooks";
import { duration, html } from "./pieces.js";

const uPlot = globalThis.uPlot;
const SERIES = 8;
const HEIGHT = 220;
const DARK = matchMedia("(prefers-color-scheme: dark)");

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

/** The moving average of values, in which each older value counts `weight` times the next one. */
function smoothed(values, weight) {
  let sum = 0, count = 0;
  return values.map((value) => {
    sum = sum * weight + value;
    count = count * weight + 1;
    return sum / count;
  });
}

/** When a step was finished, in seconds: between two known steps evenly, and before and after them as they are. */
function moment([steps, seconds], step) {
  let low = 0, high = steps.length - 1;
  if (high < 0) return null;
  if (step <= steps[0]) return seconds[0];
  if (step >= steps[high]) return seconds[high];
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (steps[middle] <= step) low = middle;
    else high = middle;
  }
  return seconds[low] + ((seconds[high] - seconds[low]) * (step - steps[low])) / (steps[high] - steps[low]);
}

/** The series of one metric: of each run that has it, its name, x and y. */
function seriesOf(metric, runs, { weight, byTime }) {
  return runs.map((run, number) => ({ run, number })).filter(({ run }) => run.curves?.[metric]).map(({ run, number }) => {
    const [steps, values] = run.curves[metric];
    const x = byTime ? steps.map((step) => moment(run.clock, step)) : steps;
    return { label: run.name, number, x, y: smoothed(values, weight) };
  });
}

/** Where runs were interrupted, on the axis. */
const marksOf = (runs, byTime) => runs.flatMap((run) => (run.axis?.incidents ?? [])
  .map((one) => ({ number: one.number, failed: one.failed, x: byTime ? one.time - run.axis.began : one.step }))
  .filter((one) => one.x !== null));

function drawMarks(chart, marks) {
  const { ctx, bbox } = chart;
  ctx.save();
  ctx.font = `${11 * devicePixelRatio}px system-ui`;
  ctx.setLineDash([4 * devicePixelRatio, 4 * devicePixelRatio]);
  for (const { number, failed, x } of marks) {
    ctx.strokeStyle = ctx.fillStyle = colour(failed ? "mark" : "soft");
    const at = Math.round(chart.valToPos(x, "x", true));
    if (at < bbox.left || at > bbox.left + bbox.width) continue;
    ctx.beginPath();
    ctx.moveTo(at, bbox.top);
    ctx.lineTo(at, bbox.top + bbox.height);
    ctx.stroke();
    ctx.fillText(String(number), at + 3 * devicePixelRatio, bbox.top + 11 * devicePixelRatio);
  }
  ctx.restore();
}

const number = (value) => (value === null || value === undefined ? "–" : String(Number(value.toPrecision(5))));

function options(series, { byTime, log, width, marks, zoomed }) {
  const axis = { stroke: colour("soft"), grid: { stroke: colour("rule"), width: 1 }, ticks: { stroke: colour("rule"), width: 1 } };
  const told = byTime ? (value) => duration(value) : (value) => String(Math.round(value));
  return {
    width, height: HEIGHT,
    cursor: { sync: { key: byTime ? "time" : "step" }, drag: { x: true, y: false } },
    scales: { x: { time: false }, y: log ? { distr: 3, log: 10 } : {} },
    axes: [{ ...axis, values: (_, ticks) => ticks.map(told) },
      { ...axis, size: 64, values: (_, ticks) => ticks.map((tick) => (tick === null ? "" : number(tick))) }],
    series: [{ label: byTime ? "time" : "step", value: (_, value) => (value === null ? "–" : told(value)) },
      ...series.map((one) => ({
        label: one.label, width: 1.5, stroke: colour(`series-${one.number % SERIES}`), spanGaps: true,
        points: { show: one.x.length < 30 }, value: (_, value) => number(value),
      }))],
    hooks: {
      draw: [(chart) => drawMarks(chart, marks())],
      setSelect: [() => { zoomed.current = true; }],
      init: [(chart) => chart.over.addEventListener("dblclick", () => { zoomed.current = false; })],
    },
  };
}

/** One metric. Dragging over a part of the axis enlarges it; a double click shows all of it again. */
function Chart({ metric, runs, weight, byTime, wantsLog }) {
  const box = useRef(), chart = useRef(), zoomed = useRef(false), marks = useRef([]), [dark, setDark] = useState(DARK.matches);
  const series = seriesOf(metric, runs, { weight, byTime });
  const log = wantsLog && series.some((one) => one.y.some((value) => value > 0));
  const data = uPlot.join(series.map((one) => [one.x, log ? one.y.map((value) => (value > 0 ? value : null)) : one.y]));
  marks.current = marksOf(runs, byTime);
  useEffect(() => {
    const change = () => setDark(DARK.matches);
    DARK.addEventListener("change", change);
    return () => DARK.removeEventListener("change", change);
  }, []);
  useEffect(() => {
    const place = box.current;
    const known = { byTime, log, width: place.clientWidth || 300, marks: () => marks.current, zoomed };
    const drawn = chart.current = new uPlot(options(series, known), data, place);
    zoomed.current = false;
    const observer = new ResizeObserver(() => drawn.setSize({ width: place.clientWidth, height: HEIGHT }));
    observer.observe(place);
    return () => {
      observer.disconnect();
      drawn.destroy();
    };
  }, [byTime, log, dark, series.map((one) => `${one.number} ${one.label}`).join("\n")]);
  useEffect(() => chart.current.setData(data, !zoomed.current), [JSON.stringify(data)]);
  return html`<figure><figcaption>${metric}</figcaption>
    <div ref=${box} role="img" aria-label=${`${metric}: ${series.map(inWords).join("; ")}`}></div></figure>`;
}

const inWords = ({ label, y }) => `${label} from ${number(y[0])} to ${number(y.at(-1))}, lowest ${number(y.reduce((a, b) => Math.min(a, b)))}`;

/** All metrics of some runs, each of which has a name, curves, a clock and an axis of incidents. */
export function Curves({ runs }) {
  const [log, setLog] = useState(false), [byTime, setByTime] = useState(false), [smooth, setSmooth] = useState(0);
  const metrics = [...new Set(runs.flatMap((run) => Object.keys(run.curves ?? {})))];
  const why = runs.filter((run) => run.noCurves).map((run) => html`<p class="soft">${runs.length > 1 ? `${run.name}: ` : ""}Curves are ${
    Object.keys(run.curves ?? {}).length ? "not complete" : "not shown"}: ${run.noCurves}.</p>`);
  if (metrics.length === 0) return why.length ? html`<div>${why}</div>` : html`<p>No curves: no loss, speed or metric was reported or printed.</p>`;
  const timed = runs.every((run) => run.clock?.[0].length);
  const weight = smooth / 100;
  return html`<div>
    <div class="tools">
      <label><input type="checkbox" checked=${log} onChange=${() => setLog(!log)} /> log axis</label>
      <label><input type="checkbox" checked=${byTime && timed} disabled=${!timed} onChange=${() => setByTime(!byTime)} /> by time</label>
      <label>smoothing <input type="range" min="0" max="99" value=${smooth} onInput=${(event) => setSmooth(Number(event.target.value))} /></label>
      <span class="soft">Drag to zoom, double-click to see all.</span>
    </div>
    <div class="figures">${metrics.map((metric) => html`<${Chart} key=${metric} metric=${metric} runs=${runs}
      weight=${weight} byTime=${byTime && timed} wantsLog=${log} />`)}</div>
    ${why}
  </div>`;
}
