// The page as a whole: log in, listen to the node, show what it says.

import { get, onLogout, post } from "./api.js";
import { attribute, find, text, visible } from "./dom.js";
import { setNow, time } from "./format.js";
import { Overlay } from "./overlay.js";
import * as overview from "./overview.js";
import * as sites from "./sites.js";
import * as tables from "./tables.js";
import { Tabs } from "./tabs.js";
import { Trace } from "./trace.js";

const SILENT = 8000; // milliseconds without news after which the page says so, at least
const AGAIN = 5000; // between two questions where there is no stream
const STREAM = 15000; // until the stream is tried again

let stream = null;
let tabs = null;
let write = false;
let heard = 0;
let every = 1000;
let later = 0;
let latest = null;

function login(problem = "") {
  stop();
  find("page").hidden = true;
  find("login").hidden = false;
  text(find("login-problem"), visible(problem));
  find("token").focus();
}

async function show(token) {
  try {
    await post("/login", { token });
    find("token").value = "";
    await begin();
  } catch (error) {
    login(error.message);
  }
}

/** The token of an address that was opened; it goes from there at once. */
function given() {
  const found = /^#token=(.+)$/.exec(location.hash);
  if (!found) return null;
  history.replaceState(null, "", location.pathname);
  return decodeURIComponent(found[1]);
}

async function begin() {
  stop();
  const told = await get("/api/snapshot");
  write = told.write;
  find("login").hidden = true;
  find("page").hidden = false;
  overview.build();
  whole(told);
  const shown = [
    ["clients", "Clients", tables.clients(write)],
    ["subscriptions", "Subscriptions", tables.subscriptions()],
    ["retained", "Retained", tables.retained()],
    ...(told.graph.topology === "any" ? [["overlay", "Overlay", new Overlay()]] : []),
    ["events", "Events", tables.events()],
    ["trace", "Trace", new Trace()],
  ];
  tabs = new Tabs(shown);
  listen();
}

function stop() {
  stream?.close();
  stream = null;
  clearTimeout(later);
  tabs?.end();
  tabs = null;
}

function listen() {
  stream?.close();
  stream = new EventSource("/events");
  stream.addEventListener("whole", (event) => whole(JSON.parse(event.data)));
  stream.addEventListener("graph", (event) => sites.graph(JSON.parse(event.data)));
  stream.addEventListener("news", (event) => news(JSON.parse(event.data)));
  stream.onerror = () => {
    alive(false);
    if (stream.readyState === EventSource.CLOSED) look(0); // refused: as many pages are open as may be
  };
}

/** Without a stream the node is asked now and then. */
async function look(passed) {
  clearTimeout(later);
  if (passed >= STREAM) return listen();
  try {
    whole(await get("/api/snapshot"));
  } catch (error) {
    if (error.status === 401) return;
  }
  later = setTimeout(() => look(passed + AGAIN), AGAIN);
}

function whole(told) {
  overview.history.whole(told.columns, told.samples);
  sites.graph(told.graph);
  put(told.snapshot);
}

function news(told) {
  overview.history.add(told.sample);
  put(told.snapshot);
}

function put(snapshot) {
  heard = Date.now();
  latest = snapshot;
  every = 1000 * snapshot.every;
  setNow(snapshot.time);
  alive(true);
  if (!document.hidden) draw();
}

function draw() {
  overview.show(latest);
  sites.show(latest, write);
}

function alive(is) {
  if (!heard) return;
  const stale = find("stale");
  stale.hidden = is;
  if (!is) text(stale, `The node has not answered since ${time(heard / 1000)}. What is shown is from then.`);
  attribute(find("live"), "class", is ? "live on good" : "live bad");
  text(find("live").lastElementChild, is ? "live" : "no answer");
}

setInterval(() => {
  if (!find("page").hidden && heard && Date.now() - heard > Math.max(SILENT, 3 * every)) alive(false);
}, 1000);

document.addEventListener("visibilitychange", () => {
  if (!document.hidden && latest && !find("page").hidden) draw();
});

find("login-form").addEventListener("submit", (event) => {
  event.preventDefault();
  show(find("token").value.trim());
});
find("logout").addEventListener("click", async () => {
  stop();
  await post("/logout");
  login();
});
window.addEventListener("hashchange", () => {
  const token = given();
  if (token) show(token);
});
onLogout(() => login(latest ? "The login is over: show the token again." : ""));
sites.build();

const token = given();
if (token) show(token);
else {
  get("/login")
    .then((told) => (told.logged_in ? begin() : login()))
    .catch((error) => login(error.message));
}
