// Keep the page on the device with a service worker. Browsers have service workers only for https
// addresses and for addresses of the same machine.

// Milliseconds for registration and first installation; then the page continues without the worker.
const PATIENCE = 2000;

/** Register the service worker, and wait until it answers the requests of this page. */
export async function serviceWorkerReady() {
  const { serviceWorker } = navigator;
  if (!serviceWorker) return;
  serviceWorker.onmessage = ({ data }) => {
    if (data.kept) document.getElementById("offline").textContent = "The page is now on this device, and works without a network.";
  };
  await Promise.race([registered(serviceWorker), new Promise((resolve) => setTimeout(resolve, PATIENCE))]);
}

async function registered(serviceWorker) {
  try {
    await serviceWorker.register("service-worker.js");
  } catch {
    return; // some private windows refuse service workers; the page works online
  }
  if (serviceWorker.controller) return;
  await new Promise((resolve) => serviceWorker.addEventListener("controllerchange", resolve, { once: true }));
}

/** Ask the service worker to keep the files of the model; the file for attention is optional. */
export async function keepForOffline({ bytes, files }, withAttention) {
  if (!navigator.serviceWorker) return;
  const { active } = await navigator.serviceWorker.ready;
  active.postMessage({ keep: Object.keys(bytes).filter((name) => withAttention || name !== files.score) });
}
