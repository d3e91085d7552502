// Keeps the page on the device: after the first visit it works without a network. The export writes files.js, with a name for this
// version of the folder and the names of its files; a new version takes over when no page of the old one is open.
importScripts("files.js");

const { version, shell } = self.TFK_TRANSFORMER_FILES;
const PREFIX = `tfk-transformer ${registration.scope} `; // other folders of this server have caches of their own
const CACHE = PREFIX + version;

addEventListener("install", (event) => event.waitUntil(keep(shell)));

addEventListener("activate", (event) => event.waitUntil((async () => {
  const old = (await caches.keys()).filter((name) => name.startsWith(PREFIX) && name !== CACHE);
  await Promise.all(old.map((name) => caches.delete(name)));
  await clients.claim();
})()));

addEventListener("fetch", (event) => {
  const { method, url } = event.request;
  if (method === "GET" && url.startsWith(registration.scope)) event.respondWith(answered(event));
});

/** Answer from the cache, or from the server, whose answer is kept. */
async function answered(event) {
  const cache = await caches.open(CACHE);
  const kept = await cache.match(event.request, { ignoreSearch: true });
  if (kept) return kept;
  const found = await fetch(event.request.url, { cache: "no-cache" });
  if (found.ok) event.waitUntil(cache.put(event.request.url, found.clone()));
  return found;
}

// The page names what it has loaded; some of it may have come before this worker answered.
addEventListener("message", (event) => event.waitUntil((async () => {
  await keep(event.data.keep);
  event.source.postMessage({ kept: true });
})()));

async function keep(names) {
  const cache = await caches.open(CACHE);
  const missing = [];
  for (const name of names) if (!(await cache.match(name))) missing.push(new Request(name, { cache: "no-cache" }));
  await cache.addAll(missing);
}
