// The page of `thalweg dashboard`: states come as server-sent events, and rows are changed in place, so that many channels cost little.
// All text of others is set as text, never as markup.

const at = (id) => document.getElementById(id);
const body = document.querySelector('#channels tbody');
const rows = new Map();
let state = { channels: [], log: [], silent: [], verification: null };
let chosen = null;
let about = { may_set: false };

const time = (us) => {
  if (us === null || us === undefined) return '';
  if (us < 1e3) return `${us.toFixed(1)} µs`;
  return us < 1e6 ? `${(us / 1e3).toFixed(2)} ms` : `${(us / 1e6).toFixed(2)} s`;
};
const bytes = (count) => {
  const units = ['B', 'kB', 'MB', 'GB'];
  let unit = 0;
  while (count >= 1000 && unit < units.length - 1) { count /= 1000; unit += 1; }
  return `${count.toFixed(unit ? 1 : 0)} ${units[unit]}`;
};
const put = (element, text) => { if (element.textContent !== text) element.textContent = text; };

// The promise of a running channel, by its ports. One that is planned and does not run has a row of its own.
function promises() {
  const found = new Map();
  for (const row of state.verification?.channels ?? []) {
    found.set(`${row.publisher_port ?? row.publisher}\n${row.subscriber}`, row);
  }
  return found;
}

function newRow(key) {
  const row = document.createElement('tr');
  row.tabIndex = 0;
  for (let cell = 0; cell < 10; cell += 1) row.insertCell();
  const meter = document.createElement('meter');
  meter.hidden = true;
  row.cells[5].append(meter, document.createElement('span'));
  const choose = () => { chosen = chosen === key ? null : key; paint(); stages(); };
  row.addEventListener('click', choose);
  row.addEventListener('keydown', (event) => { if (event.key === 'Enter') choose(); });
  rows.set(key, row);
  return row;
}

function fill(row, channel, promise) {
  const cells = row.cells;
  const now = promise ? promise.now : '';
  const name = now.replace(' ', '-');
  if (row.dataset.state !== name) { row.dataset.state = name; row.dataset.since = String(Date.now()); } // for those who measure
  row.className = name;
  const lost = (channel.lost ?? 0) + (channel.dropped ?? 0);
  const texts = [channel.topic, channel.publisher, channel.subscriber, channel.carrier ?? '', now];
  texts.forEach((text, at) => put(cells[at], text));
  const [meter, label] = cells[5].children;
  const bound = promise?.bound_us ?? promise?.deadline_us;
  const delay = promise?.now_us;
  meter.hidden = !(bound && delay !== null && delay !== undefined);
  if (!meter.hidden) { meter.max = 1; meter.high = 0.9; meter.value = Math.min(delay / bound, 1); }
  put(label, bound ? `${time(delay) || '-'} of ${time(bound)}${promise.worst_us ? `, ${time(promise.worst_us)} at worst` : ''}` : '');
  put(cells[6], (channel.received_hz ?? channel.sent_hz ?? 0).toFixed(1));
  put(cells[7], bytes(channel.bytes_per_s ?? 0));
  put(cells[8], String(lost));
  put(cells[9], String(channel.waiting ?? 0));
}

function paint() {
  const found = promises();
  const wanted = at('filter').value.trim();
  const shows = (channel) => !wanted || [channel.topic, channel.publisher, channel.subscriber].some((text) => text.includes(wanted));
  const seen = new Set();
  const add = (channel, promise) => {
    const key = `${channel.publisher}\n${channel.subscriber}`;
    seen.add(key);
    const row = rows.get(key) ?? newRow(key);
    fill(row, channel, promise);
    row.hidden = !shows(channel);
    row.classList.toggle('chosen', key === chosen);
    if (!row.parentNode) body.append(row);
  };
  for (const channel of state.channels) {
    const key = `${channel.publisher}\n${channel.subscriber}`;
    add(channel, found.get(key));
    found.delete(key);
  }
  for (const promise of found.values()) {
    add({ topic: promise.topic, publisher: promise.publisher_port ?? promise.publisher, subscriber: promise.subscriber }, promise);
  }
  for (const [key, row] of rows) if (!seen.has(key)) { row.remove(); rows.delete(key); }
  at('none').hidden = seen.size > 0;
  summary();
  losses();
  log();
}

// Channels that have lost samples, each with the places.
function losses() {
  const refused = (held) => (held ? held.over_bytes + held.over_memory : 0);
  const rows = state.channels.map((one) => [one, [one.dropped ?? 0, refused(one.queue), one.lost ?? 0, one.skipped, refused(one.mailbox)]]);
  const lossy = rows.filter(([, counts]) => counts.some((count) => count > 0));
  at('losses').hidden = lossy.length === 0;
  document.querySelector('#losses tbody').replaceChildren(...lossy.map(([one, counts]) => {
    const row = document.createElement('tr');
    [one.topic, one.publisher, one.subscriber, ...counts.map(String)].forEach((text) => put(row.insertCell(), text));
    return row;
  }));
}

// The picture of the network. It comes as a document, so that lines tell their names where the pointer is.
let drawing = false;
async function map() {
  if (drawing || document.hidden) return;
  drawing = true;
  try {
    const answer = await fetch('map.svg');
    if (!answer.ok) return;
    const svg = new DOMParser().parseFromString(await answer.text(), 'image/svg+xml').documentElement;
    if (svg.localName === 'svg') at('map').replaceChildren(document.importNode(svg, true));
  } catch { /* the server is gone, which the events tell */ } finally { drawing = false; }
}

function summary() {
  const judged = state.verification?.channels ?? [];
  const broken = judged.filter((row) => row.now === 'broken').length;
  const risk = judged.filter((row) => row.now === 'at risk').length;
  const parts = [`${state.channels.length} channels`];
  if (state.verification) parts.push(broken ? `${broken} broken` : 'no promise broken', `${risk} at risk`);
  if (state.silent.length) parts.push(`no answer from ${state.silent.join(', ')}`);
  put(at('summary'), parts.join(' · '));
  at('summary').className = broken ? 'broken' : '';
}

let logged = '';
function log() {
  const last = state.log.length ? JSON.stringify(state.log[state.log.length - 1]) + state.log.length : '';
  if (last === logged) return;
  logged = last;
  at('log').replaceChildren(...state.log.slice().reverse().map((entry) => {
    const item = document.createElement('li');
    const when = document.createElement('time');
    when.textContent = new Date(entry.at_unix_ms).toLocaleTimeString();
    const kind = document.createElement('b');
    kind.textContent = entry.kind;
    const by = document.createElement('i');
    by.textContent = entry.by ? ` by ${entry.by}` : '';
    item.append(when, kind, entry.text, by);
    return item;
  }));
}

// One channel's stages, as long as it is chosen.
let asking = false;
async function stages() {
  const key = chosen;
  at('detail').hidden = !key;
  if (!key) return;
  const [publisher, subscriber] = key.split('\n');
  const promise = promises().get(key);
  const topic = state.channels.find((one) => one.publisher === publisher && one.subscriber === subscriber)?.topic ?? promise?.topic;
  at('detail').hidden = !topic; // the channel is closed
  if (!topic) return;
  put(at('detail-title'), `${topic}: ${publisher} → ${subscriber}`);
  put(at('detail-why'), promise ? `${promise.verdict}${promise.because ? `: ${promise.because}` : ''}${promise.stage ? `; most of the worst delay: ${promise.stage}` : ''}` : '');
  at('set').hidden = !about.may_set;
  if (asking) return; // a slow node has one question at a time
  asking = true;
  try {
    const answer = await fetch(`api/stages?topic=${encodeURIComponent(topic)}`);
    const channels = answer.ok ? await answer.json() : [];
    if (key !== chosen) return;
    const one = channels.find((channel) => channel.publisher === publisher && channel.subscriber === subscriber);
    const lines = Object.entries(one?.stages_us ?? {}).map(([name, figures]) => {
      const line = document.createElement('tr');
      [name, time(figures.p50), time(figures.p99), time(figures.max), String(figures.n)].forEach((text) => put(line.insertCell(), text));
      return line;
    });
    document.querySelector('#stages tbody').replaceChildren(...lines);
  } catch { /* the server is gone, which the events tell */ } finally { asking = false; }
}

at('set').addEventListener('submit', async (event) => {
  event.preventDefault();
  const words = [...chosen.split('\n'), ...at('change').value.split(/\s+/).filter(Boolean)];
  const headers = { 'Content-Type': 'application/json', Authorization: `Bearer ${at('token').value}` };
  const answer = await fetch('api/set', { method: 'POST', headers, body: JSON.stringify({ words }) });
  const said = await answer.json();
  const effects = (said.ends ?? []).map((end) => `${end.end}: effective: ${end.effective ? 'yes' : 'no'}${end.because ? `, because ${end.because}` : ''}`);
  put(at('set-answer'), answer.ok ? effects.join('; ') || 'set' : said.error);
});
at('filter').addEventListener('input', paint);

window.addEventListener('error', (event) => { put(at('summary'), `the page has failed: ${event.message}`); at('summary').className = 'broken'; });
window.addEventListener('unhandledrejection', (event) => { put(at('summary'), `the page has failed: ${event.reason}`); at('summary').className = 'broken'; });
const events = new EventSource('api/events');
events.addEventListener('about', (event) => {
  about = JSON.parse(event.data);
});
events.onmessage = (event) => { state = JSON.parse(event.data); paint(); stages(); map(); };
events.onerror = () => { put(at('summary'), 'no connection to the dashboard: trying again'); at('summary').className = 'broken'; };
