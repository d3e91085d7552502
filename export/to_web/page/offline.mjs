// The page kept on the device by its service worker, where the browser has one: on https, and on this machine's own addresses.

const PATIENCE = 2000; // milliseconds for registration and first installation; after them, the page goes on without

/** Register the service worker, and wait until it answers the requests of this page. */
export async function serviceWorkerReady() {
  const { serviceWorker } = navigator;
  if (!serviceWorker) return;
  serviceWorker.onmessage = ({ data }) => {
    if (data.kept) document.getElementById("offline").textContent = "The page is on this device now, and works without a network.";
  };
  await Promise.race([registered(serviceWorker), new Promise((resolve) => setTimeout(resolve, PATIENCE))]);
}

async function registered(serviceWorker) {
  try {
    await serviceWorker.register("service-worker.js");
  } catch {
    return; // some private windows refuse it; the page works online
  }
  if (serviceWorker.controller) return;
  await new Promise((resolve) => serviceWorker.addEventListener("controllerchange", resolve, { once: true }));
}

/** Ask the service worker to keep the files of the model, with the one for attention if it was used. */
export async function keepForOffline({ bytes, files }, withAttention) {
  if (!navigator.serviceWorker) return;
  const { active } = await navigator.serviceWorker.ready;
  active.postMessage({ keep: Object.keys(bytes).filter((name) => withAttention || name !== files.score) });
}
