// The source of a file, each line with its time and bytes, coloured by its share of the hottest line; beside it the
// whole file as a small map.

import { state, update } from "./state.js";
import { clean, make, showBytes, showCount, showTime } from "./text.js";

/** The figures by which lines can be coloured. */
const FIGURES = /** @type {[string, string, (value: number) => string][]} */ ([
  ["total", "time", showTime],
  ["self", "self", showTime],
  ["hits", "hits", showCount],
  ["calls", "calls", showCount],
  ["allocated", "bytes", showBytes],
  ["blocks", "blocks", showCount],
]);

export const OF_LINES =
  "of a line of own code: with what libraries allocated for it; of any other line: what it allocated itself";

/**
 * @typedef {object} File
 * @property {string} file
 * @property {boolean} own
 * @property {string[]|null} text
 * @property {number[]} lines
 * @property {number[]} [total]
 * @property {number[]} [self]
 * @property {number[]} [hits]
 * @property {number[]} [calls]
 * @property {number[]} [allocated]
 * @property {number[]} [blocks]
 */

/**
 * Returns the warmth of a line, 0 to 1. By the square root, lines with a tenth of the hottest line's value can be seen,
 * too.
 * @param {number} value
 * @param {number} most
 */
export function warmth(value, most) {
  return value > 0 && most > 0 ? Math.max(0.06, Math.sqrt(value / most)) : 0;
}

/** Says what the time of a line means on this page. @param {File[]} files */
export function meaningOfTime(files) {
  return files.some((file) => "hits" in file)
    ? "time of a line: until the next line of the same call"
    : "time of a line: the time of the calls that it made (record with --lines for the time of the line itself)";
}

export class Source {
  /**
   * @param {File[]} files
   * @param {HTMLElement} pane
   * @param {boolean} explained whether the page says elsewhere what the time of a line means
   */
  constructor(files, pane, explained) {
    this.files = files;
    this.key = "";
    this.by = "";
    this.choice = /** @type {HTMLSelectElement} */ (
      make("select", { id: "file", "aria-label": "file", onchange: () => update({ file: this.choice.value }) })
    );
    const groups = [
      [true, "own code"],
      [false, "other code"],
    ];
    for (const [own, label] of groups) {
      const group = make("optgroup", { label });
      for (const each of files)
        if (each.own === own) group.append(make("option", { value: each.file }, clean(each.file)));
      if (group.childElementCount) this.choice.append(group);
    }
    this.unit = /** @type {HTMLSelectElement} */ (
      make("select", {
        id: "warm",
        "aria-label": "colour lines by",
        onchange: () => {
          this.by = this.unit.value;
          update({});
        },
      })
    );
    this.status = make("span", { class: "soft" });
    this.body = make("tbody");
    this.head = make("thead");
    this.box = make(
      "div",
      { class: "scroll source", tabIndex: 0, role: "region", "aria-label": "source" },
      make("table", { class: "lines" }, this.head, this.body),
    );
    this.map = /** @type {HTMLCanvasElement} */ (
      make("canvas", { class: "minimap", role: "img", "aria-label": "the whole file: warm lines" })
    );
    this.window = make("div", { class: "window" });
    this.mapBox = make("div", { class: "map" }, this.map, this.window);
    pane.append(
      make(
        "div",
        { class: "bar" },
        this.choice,
        make("label", {}, "colour by ", this.unit),
        this.status,
        ...(explained ? [] : [make("span", { class: "soft" }, meaningOfTime(files))]),
      ),
      make("div", { class: "beside" }, this.box, this.mapBox),
    );
    const move = (/** @type {PointerEvent} */ event) => {
      const { top, height } = this.map.getBoundingClientRect();
      const part = (event.clientY - top) / Math.max(1, height);
      this.box.scrollTop = part * this.box.scrollHeight - this.box.clientHeight / 2;
    };
    this.mapBox.addEventListener("pointerdown", (event) => {
      this.mapBox.setPointerCapture(event.pointerId);
      move(event);
    });
    this.mapBox.addEventListener("pointermove", (event) => {
      if (this.mapBox.hasPointerCapture(event.pointerId)) move(event);
    });
    this.box.addEventListener("scroll", () => this.moveWindow());
  }

  /** The file that is shown. */
  get shown() {
    return this.files.find(({ file }) => file === state.file) || this.files[0];
  }

  /** @param {boolean} dark */
  draw(dark) {
    const file = this.shown;
    if (!file) {
      this.status.textContent = "no line of any file was recorded";
      return;
    }
    const figures = FIGURES.filter(([name]) => name in file);
    if (!figures.some(([name]) => name === this.by)) this.by = figures[0] ? figures[0][0] : "";
    const key = [file.file, this.by, dark, this.box.clientHeight].join("\0");
    if (key === this.key) return;
    const other = !this.key.startsWith(`${file.file}\0`);
    this.key = key;
    this.choice.value = file.file;
    this.unit.replaceChildren(...figures.map(([value, text]) => make("option", { value }, text)));
    this.unit.value = this.by;
    this.fill(file, figures);
    this.drawMap(file, dark);
    if (other) {
      const hottest = this.body.querySelector(".hottest");
      this.box.scrollTop = hottest ? /** @type {HTMLElement} */ (hottest).offsetTop - this.box.clientHeight / 2 : 0;
    }
    this.moveWindow();
  }

  /** @param {File} file @param {[string, string, (value: number) => string][]} figures */
  fill(file, figures) {
    const at = new Map(file.lines.map((line, n) => [line, n]));
    const values = /** @type {any} */ (file)[this.by] || [];
    const most = values.reduce((/** @type {number} */ a, /** @type {number} */ b) => Math.max(a, b), 0);
    const sum = values.reduce((/** @type {number} */ a, /** @type {number} */ b) => a + b, 0);
    const show = (figures.find(([name]) => name === this.by) || FIGURES[0])[2];
    this.status.textContent = `hottest line: ${show(most)}${this.by === "total" ? "" : `; all lines: ${show(sum)}`}${file.text ? "" : "; the file was not found: only lines with figures are shown"}`;
    this.head.replaceChildren(
      make(
        "tr",
        {},
        make("th", { class: "number" }, "line"),
        ...figures.map(([figure, text]) =>
          make("th", { class: "number", title: figure === "allocated" || figure === "blocks" ? OF_LINES : "" }, text),
        ),
        make("th", {}, "source"),
      ),
    );
    const rows = [];
    let first = true;
    for (const line of this.linesOf(file)) {
      const n = at.get(line);
      const value = n === undefined ? 0 : values[n];
      const row = make("tr", { id: `line-${line}` });
      const share = warmth(value, most);
      if (share) row.style.setProperty("--warm", `${Math.round(share * 100)}%`);
      row.className = share ? "warm" : "";
      if (value && value === most && first) {
        row.classList.add("hottest");
        first = false;
      }
      row.append(
        make("td", { class: "number soft" }, String(line)),
        ...figures.map(([name, , tell]) => {
          const known = n === undefined ? 0 : /** @type {any} */ (file)[name][n];
          return make("td", { class: "number" }, known ? tell(known) : "");
        }),
        make(
          "td",
          { class: "code" },
          make("bdi", {}, clean((file.text ? (file.text[line - 1] ?? "") : "").replaceAll("\t", "    "))),
        ),
      );
      rows.push(row);
    }
    this.body.replaceChildren(...rows);
  }

  /** @param {File} file @returns {number[]} */
  linesOf(file) {
    if (file.text)
      return Array.from(
        { length: Math.max(file.text.length, file.lines[file.lines.length - 1] || 0) },
        (_, n) => n + 1,
      );
    return file.lines;
  }

  /** @param {File} file @param {boolean} dark */
  drawMap(file, dark) {
    const lines = this.linesOf(file);
    const count = Math.max(1, lines.length);
    const scale = window.devicePixelRatio || 1;
    const high = Math.max(20, Math.min(this.box.clientHeight, count * 3));
    const { map } = this;
    map.width = Math.round(90 * scale);
    map.height = Math.round(high * scale);
    map.style.height = `${high}px`;
    const context = /** @type {CanvasRenderingContext2D} */ (map.getContext("2d"));
    context.setTransform(scale, 0, 0, scale, 0, 0);
    const each = high / count;
    const values = /** @type {any} */ (file)[this.by] || [];
    const most = values.reduce((/** @type {number} */ a, /** @type {number} */ b) => Math.max(a, b), 0);
    const place = new Map(lines.map((line, n) => [line, n]));
    context.fillStyle = dark ? "rgb(163 170 182 / .45)" : "rgb(90 98 110 / .35)";
    if (file.text) {
      file.text.forEach((text, n) => {
        const indent = text.length - text.trimStart().length;
        if (text.trim())
          context.fillRect(
            Math.min(60, indent),
            n * each,
            Math.min(90 - Math.min(60, indent), text.trim().length),
            Math.max(0.5, each * 0.6),
          );
      });
    }
    file.lines.forEach((line, n) => {
      const share = warmth(values[n], most);
      if (!share) return;
      context.fillStyle = `rgb(${dark ? "255 130 50" : "214 84 0"} / ${share})`;
      // A single line is at least 1.5 pixels high, so that it is seen in a long file, too.
      context.fillRect(0, (place.get(line) || 0) * each, 90, Math.max(1.5, each));
    });
  }

  moveWindow() {
    const { clientHeight, scrollHeight, scrollTop } = this.box;
    const high = this.map.clientHeight;
    this.window.style.top = `${(scrollTop / Math.max(1, scrollHeight)) * high}px`;
    this.window.style.height = `${Math.min(1, clientHeight / Math.max(1, scrollHeight)) * high}px`;
  }

  /** Shows a line of a file. @param {string} file @param {number} line */
  go(file, line) {
    update({ file });
    requestAnimationFrame(() => this.body.querySelector(`#line-${line}`)?.scrollIntoView({ block: "center" }));
  }
}
