// Binds keys to actions, and lists them in the help.

import { byId, make } from "./text.js";

/** @typedef {{keys: string[], shown: string, what: string, run: () => void}} Key */

/** Whether an element is one to write in, which needs the letters itself. @param {HTMLElement} element */
function isText(element) {
  return (
    element.tagName === "TEXTAREA" ||
    (element.tagName === "INPUT" && /^(text|search|number)$/.test(/** @type {HTMLInputElement} */ (element).type))
  );
}

/** Clears a field and leaves it. @param {HTMLInputElement|HTMLTextAreaElement} field */
function leaveText(field) {
  if (field.value) {
    field.value = "";
    field.dispatchEvent(new Event("input", { bubbles: true }));
  }
  field.blur();
}

/** @param {Key[]} keys */
export function bindKeys(keys) {
  /** @type {Map<string, () => void>} */
  const known = new Map();
  for (const { keys: names, run } of keys) for (const name of names) known.set(name, run);
  // A list that was opened with the mouse loses the focus once something is chosen, so that letters are keys again. One
  // that was reached with Tab keeps it: the arrows go through its items.
  let byPointer = false;
  window.addEventListener("pointerdown", () => (byPointer = true), true);
  window.addEventListener("keydown", () => (byPointer = false), true);
  window.addEventListener("change", (event) => {
    const target = /** @type {HTMLElement} */ (event.target);
    if (byPointer && target.tagName === "SELECT") target.blur();
  });
  window.addEventListener("keydown", (event) => {
    const target = /** @type {HTMLElement} */ (event.target);
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Escape" && byId("keys").open) return;
    if (isText(target)) {
      if (event.key !== "Escape") return;
      event.preventDefault();
      leaveText(/** @type {HTMLInputElement} */ (target));
      return;
    }
    if (target.tagName === "SELECT") {
      if (event.key === "Escape") target.blur();
      return;
    }
    if (target.closest("table") && /^(Arrow|Enter)/.test(event.key)) return;
    if (target.closest("[role=tablist]") && /^Arrow(Left|Right)$/.test(event.key)) return;
    if (target.tagName === "BUTTON" && (event.key === "Enter" || event.key === " ")) return;
    const run = known.get(
      event.key.length === 1
        ? event.key.toLowerCase() + (event.shiftKey && /[a-z]/i.test(event.key) ? "+" : "")
        : event.key,
    );
    if (!run) return;
    event.preventDefault();
    run();
  });
  byId("keys").replaceChildren(
    make("h2", {}, "Keys and mouse"),
    make(
      "table",
      {},
      make(
        "tbody",
        {},
        ...keys
          .filter(({ shown }) => shown)
          .map(({ shown, what }) => make("tr", {}, make("th", { scope: "row" }, shown), make("td", {}, what))),
        ...[
          ["wheel, pinch", "zoom about the pointer"],
          ["Shift+wheel", "earlier, later"],
          ["wheel over the names", "scroll the lanes"],
          ["drag", "move the view"],
          ["drag in the strip at the top", "move the view in the whole run"],
          ["Shift+drag", "select a range, for sums and a flame graph"],
          ["click", "select a call; or an instant: what was running, what was live"],
          ["Alt+click on a wait", "the call of the thread that let it go on, at that instant"],
          ["double click", "fit a call into the view"],
          ["click a thread's name", "fold or unfold it"],
          ["click \u2191 or \u2193 at the names", "scroll to the lanes that are named there"],
          ["click a row of the functions", "the slowest call of the function; again: the next one"],
          ["drag over bars of durations", "mark the calls that took so long"],
          ["drag the line above the tabs", "height of the panel; \u2191 and \u2193 move it, too"],
        ].map(([a, b]) => make("tr", {}, make("th", { scope: "row" }, a), make("td", {}, b))),
      ),
    ),
    make("button", { type: "button", onclick: () => byId("keys").close() }, "close"),
  );
}
