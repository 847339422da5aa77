// What can be done to a job. What cannot be undone is asked twice.

import { useEffect, useRef, useState } from "preact/hooks";
import { html } from "./pieces.js";
import { post } from "./server.js";

export function Actions({ id, name, acts }) {
  const [asked, setAsked] = useState(null), [said, setSaid] = useState(null);
  const carryOut = async (act, given) => {
    setAsked(null);
    setSaid({ text: `${act.label} …` });
    try {
      const { succeeded, said: text } = await post("/api/act", { id, act: act.name, given });
      setSaid({ text, failed: !succeeded });
    } catch (error) {
      setSaid({ text: error.message, failed: true });
    }
  };
  return html`<div class="actions">
    ${acts.map((act) => html`<button class=${act.warns ? "danger" : ""} onClick=${() => setAsked(act)}>${act.label}</button>`)}
    ${said && html`<output class=${said.failed ? "problem" : ""}>${said.text}</output>`}
    ${asked && html`<${Question} act=${asked} name=${name} onYes=${carryOut} onNo=${() => setAsked(null)} />`}
  </div>`;
}

function Question({ act, name, onYes, onNo }) {
  const dialog = useRef(), first = useRef(), [again, setAgain] = useState(false), [given, setGiven] = useState("");
  useEffect(() => {
    dialog.current.showModal();
    first.current.focus();
  }, []);
  const yes = (event) => {
    event.preventDefault();
    if (act.warns && !again) return setAgain(true);
    dialog.current.close();  // It gives the focus back to the button that has opened it.
    onYes(act, given);
  };
  // The second question has its button in another place, so that a double click does not answer both.
  return html`<dialog ref=${dialog} onClose=${onNo} aria-labelledby="question"><form onSubmit=${yes}>
    <p id="question">${again ? `${act.warns} Really?` : `${act.label} ${name}?`}</p>
    ${act.asks && html`<label>${act.asks} <input ref=${first} class="short" inputmode="numeric" pattern="[0-9]+" required value=${given}
      onInput=${(event) => setGiven(event.target.value)} /></label>`}
    <div class=${again ? "answers turned" : "answers"}>
      <button ref=${act.asks ? null : first} type="button" onClick=${() => dialog.current.close()}>No</button>
      <button class=${act.warns ? "danger" : ""}>${again ? `Yes, ${act.label.toLowerCase()} it` : act.label}</button>
    </div>
  </form></dialog>`;
}
