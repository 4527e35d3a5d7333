// Starts the heat map: the files of a program at the left, the source of one file at the right.

import { OF_LINES, Source, meaningOfTime, warmth } from "./source.js";
import { applyTheme, fromFragment, onChange, state, turnTheme, update, writeFragment } from "./state.js";
import { byId, clean, counted, make, showBytes, showTime } from "./text.js";
import { giveUp, unpack } from "./unpack.js";

/**
 * Returns each path the fewest of its last parts that no other path ends with.
 * @param {string[]} paths
 * @returns {string[]}
 */
function shortest(paths) {
  /** @type {Map<string, number>} */
  const count = new Map(); // of each ending, the paths that have it
  const ends = paths.map((path) => {
    const parts = path.startsWith("<") ? [path] : path.split("/");
    const all = parts.map((_, n) => parts.slice(-1 - n).join("/"));
    for (const end of all) count.set(end, (count.get(end) || 0) + 1);
    return all;
  });
  return ends.map((all) => all.find((end) => count.get(end) === 1) ?? all[all.length - 1]);
}

async function startHeat() {
  const head = JSON.parse(new TextDecoder().decode(await unpack("head")));
  const plain = { ...state };
  Object.assign(state, fromFragment(location.hash));
  byId("title").textContent = clean(head.title);
  byId("summary").textContent = head.summary;
  byId("notes").textContent = head.notes.lost
    ? `${counted(head.notes.lost, "event")} lost`
    : head.notes.unsure || "nothing lost";
  byId("notes").className = head.notes.lost || head.notes.unsure ? "bad" : "good";
  byId("limits").replaceChildren(
    make("span", {}, meaningOfTime(head.source)),
    ...head.notes.limits.map((/** @type {string} */ text) => make("span", { dir: "auto" }, clean(text))),
  );
  const source = new Source(head.source, byId("source"), true);
  const sum = (/** @type {number[]|undefined} */ values) => (values || []).reduce((a, b) => a + b, 0);
  const hottest = (/** @type {number[]|undefined} */ values) => (values || []).reduce((a, b) => Math.max(a, b), 0);
  // Lines of a file call each other, so their times do not add up: a file is as warm as its hottest line.
  const most = head.source.reduce(
    (/** @type {number} */ a, /** @type {any} */ file) => Math.max(a, hottest(file.total)),
    0,
  );
  const names = shortest(head.source.map((/** @type {any} */ file) => file.file));
  const rows = head.source.map((/** @type {any} */ file, /** @type {number} */ n) => {
    const row = /** @type {HTMLTableRowElement} */ (
      make(
        "tr",
        {
          tabIndex: 0,
          title: clean(file.file),
          onclick: () => update({ file: file.file }),
          onkeydown: (/** @type {KeyboardEvent} */ event) => {
            if (event.key === "Enter" || event.key === " ") update({ file: file.file });
          },
        },
        make("td", {}, make("bdi", {}, clean(names[n]))),
        make("td", { class: "number" }, file.total ? showTime(hottest(file.total)) : ""),
        make("td", { class: "number" }, file.allocated ? showBytes(sum(file.allocated)) : ""),
      )
    );
    row.className = "warm";
    row.style.setProperty("--warm", `${Math.round(100 * warmth(hottest(file.total), most))}%`);
    return { row, file: file.file };
  });
  byId("files").append(
    make(
      "table",
      {},
      make(
        "thead",
        {},
        make(
          "tr",
          {},
          make("th", {}, "file"),
          make("th", { class: "number", title: "time of its hottest line" }, "hottest line"),
          make("th", { class: "number", title: OF_LINES }, "bytes"),
        ),
      ),
      make("tbody", {}, ...rows.map((/** @type {any} */ each) => each.row)),
    ),
  );
  const draw = () => {
    const dark = applyTheme();
    source.draw(dark);
    for (const { row, file } of rows) {
      const chosen = source.shown !== undefined && file === source.shown.file;
      row.classList.toggle("chosen", chosen);
      row.setAttribute("aria-current", String(chosen));
    }
    writeFragment(plain);
  };
  onChange(draw);
  byId("theme").addEventListener("click", turnTheme);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => update({}));
  window.addEventListener("hashchange", () => update({ ...plain, ...fromFragment(location.hash) }));
  new ResizeObserver(() => update({})).observe(byId("source"));
  draw();
  Object.assign(window, { eventprofHeat: { head, source, state, update } });
}

startHeat().catch(giveUp);
