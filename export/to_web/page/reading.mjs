// Read files from the disk in Node, and from a server everywhere.

const onDisk = () => import(/* webpackIgnore: true */ /* @vite-ignore */ "node:fs/promises");

/** Return the address of a file: a URL, the text of one, or in Node a path. */
export async function addressOf(file) {
  if (file instanceof URL) return file;
  if (globalThis.location) return new URL(file, location.href);
  if (/^\w{2,}:/.test(file)) return new URL(file); // the names of drives have one letter
  const { pathToFileURL } = await import(/* webpackIgnore: true */ /* @vite-ignore */ "node:url");
  return pathToFileURL(file);
}

/** Read files concurrently, in {name: address}; report the bytes read so far and the total to onProgress. */
export async function readAll(addresses, total, onProgress) {
  let loaded = 0;
  const count = (size) => onProgress({ loaded: (loaded += size), total });
  const contents = await Promise.all(Object.values(addresses).map((url) => read(url, count)));
  return Object.fromEntries(Object.keys(addresses).map((name, index) => [name, contents[index]]));
}

/** Read a file, and count its bytes as they arrive. */
export async function read(url, count = () => {}) {
  if (url.protocol === "file:") {
    const content = await (await onDisk()).readFile(url).catch((error) => refuse(url, error.code === "ENOENT" ? "none" : error.message));
    count(content.length);
    return new Uint8Array(content);
  }
  const answer = await fetch(url).catch(() => ({ ok: false, status: "no answer" }));
  if (!answer.ok) refuse(url, `${answer.status} from the server`);
  const parts = [];
  for (const reader = answer.body.getReader(); ;) {
    const { done, value } = await reader.read();
    if (done) return new Uint8Array(await new Blob(parts).arrayBuffer());
    parts.push(value);
    count(value.length);
  }
}

function refuse(url, received) {
  throw new Error(`${decodeURI(url.pathname)}: expected a file, got ${received}.`);
}
