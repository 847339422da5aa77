// Which page is shown, by what is behind # in the address.

import { render } from "preact";
import { useEffect, useState } from "preact/hooks";
import { Comparison, Job } from "./job.js";
import { Jobs } from "./jobs.js";
import { html } from "./pieces.js";
import { takeToken } from "./server.js";

function parts() {
  try {
    return location.hash.replace(/^#\/?/, "").split("/").map((part) => part.split(",").map(decodeURIComponent));
  } catch {
    return [[""]];
  }
}

function App() {
  const [[[page], ids = [""], [tab] = [""]], setParts] = useState(parts);
  useEffect(() => {
    const change = () => {
      takeToken();
      setParts(parts());
    };
    addEventListener("hashchange", change);
    return () => removeEventListener("hashchange", change);
  }, []);
  const shown = page === "job" ? html`<${Job} key=${ids[0]} id=${ids[0]} tab=${tab} />`
    : page === "compare" ? html`<${Comparison} key=${ids.join()} ids=${ids} />` : html`<${Jobs} />`;
  return html`<header><a href="#/">DDPJob</a>${page && html` <a class="back" href="#/">← All jobs</a>`}</header><main>${shown}</main>`;
}

addEventListener("keydown", (event) => {
  if (event.key !== "/" || event.ctrlKey || event.metaKey || /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName)) return;
  document.querySelector("input[type=search]")?.focus();
  event.preventDefault();
});

takeToken();
render(html`<${App} />`, document.getElementById("app"));
