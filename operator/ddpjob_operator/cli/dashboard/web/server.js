// The server: each request carries the token, which no other page can know or send.

const TOKEN = "ddpjob-dashboard-token";
const RETRY_MS = 1000;

/** Takes the token from the address, where nobody need see it any longer, and keeps it for reloads and further tabs. */
export function takeToken() {
  const found = /^#token=([\w-]+)$/.exec(location.hash);
  if (found) {
    localStorage.setItem(TOKEN, found[1]);
    history.replaceState(null, "", "#/");
  }
}

async function ask(path, options = {}) {
  const token = localStorage.getItem(TOKEN) ?? "";
  const response = await fetch(path, { ...options, headers: { Authorization: `Bearer ${token}` } });
  if (response.ok) return response;
  const text = await response.text();
  throw new Error(response.status === 422 ? JSON.parse(text).problem : text);
}

export const get = async (path) => (await ask(path)).json();

export const post = async (path, body) =>
  (await ask(path, { method: "POST", body: JSON.stringify(body) })).json();

/** Server-sent events. EventSource cannot send the token in a header, so the stream is read here. */
async function read(path, signal, onEvent) {
  const reader = (await ask(path, { signal })).body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "", first = true;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const events = (rest + value).split("\n\n");
    rest = events.pop();
    for (const event of events) {
      if (!event.startsWith("data: ")) continue;
      onEvent(JSON.parse(event.slice(6)), first);
      first = false;
    }
  }
}

/**
 * Follows a stream until the returned function is called: `onEvent(event, first)`, where `first` is true for the first
 * event of each connection, and `onTrouble(text)`, empty when the trouble is over. A hidden page follows nothing.
 */
export function follow(path, onEvent, onTrouble, again = true) {
  let control = new AbortController(), stopped = false;
  const shown = () => new Promise((resolve) => {
    if (!document.hidden) resolve();
    else document.addEventListener("visibilitychange", resolve, { once: true });
  });
  const hide = () => document.hidden && control.abort();
  document.addEventListener("visibilitychange", hide);
  (async () => {
    while (!stopped) {
      await shown();
      if (stopped) return;
      control = new AbortController();
      try {
        await read(path, control.signal, (event, first) => {
          if (stopped) return;
          if (first) onTrouble("");
          onEvent(event, first);
        });
        if (!again) return;
        onTrouble("ddpjob dashboard has ended.");
      } catch (error) {
        if (stopped || control.signal.aborted) continue;
        onTrouble(error instanceof TypeError ? "ddpjob dashboard does not answer. Has it ended?" : error.message);
      }
      await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
    }
  })();
  return () => {
    stopped = true;
    control.abort();
    document.removeEventListener("visibilitychange", hide);
  };
}
