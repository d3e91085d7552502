// Keep the page on the device, so that it works without a network after the first visit. The export
// writes files.js, with a name for this version of the folder and the names of its files. A new
// version becomes active when no page of the old version is open.
importScripts("files.js");

const { version, shell } = self.TFK_TRANSFORMER_FILES;
// Other folders of this server have separate caches.
const PREFIX = `tfk-transformer ${registration.scope} `;
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

/** Answer from the cache, or from the server and keep the answer. */
async function answered(event) {
  const cache = await caches.open(CACHE);
  const kept = await cache.match(event.request, { ignoreSearch: true });
  if (kept) return kept;
  const found = await fetch(event.request.url, { cache: "no-cache" });
  if (found.ok) event.waitUntil(cache.put(event.request.url, found.clone()));
  return found;
}

// The page sends the names of the files that it loaded, maybe before this worker was active.
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
