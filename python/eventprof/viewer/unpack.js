// The sections of a page: gzip in base64, each in an element of its own.

/** Gives the bytes of a section, and removes its element. @param {string} id */
export async function unpack(id) {
  const element = document.getElementById(`data-${id}`);
  if (!element) throw new Error(`its section ${id} is missing: the file was cut off`);
  const text = element.textContent || "";
  element.remove(); // the text may be large
  /** @type {Uint8Array<ArrayBuffer>} */
  const packed = /** @type {any} */ (Uint8Array).fromBase64
    ? /** @type {any} */ (Uint8Array).fromBase64(text)
    : Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/** Says on the page that it cannot be shown. @param {any} error */
export function giveUp(error) {
  const box = /** @type {HTMLElement} */ (document.getElementById("limits"));
  box.className = "bad";
  box.textContent = `This page cannot be shown: ${error && error.message}`;
  console.error(error);
}
