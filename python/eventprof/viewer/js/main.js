// Starts the page: decodes first what is in view, connects the parts, and gives tests access (window.eventprofPage).

import { AREA_NAMES, areaColour, cssOf, palette, waitColour } from "./colour.js";
import { Data } from "./data.js";
import { CallDetail, InstantDetail, liveByHolder, wordsOf } from "./detail.js";
import { rangeInView } from "./draw.js";
import { Findings } from "./findings.js";
import { Flame } from "./flame.js";
import { Functions } from "./functions.js";
import { Histogram } from "./histogram.js";
import { bindKeys } from "./keys.js";
import { GUTTER, RULER } from "./lanes.js";
import { Memory } from "./memory.js";
import { Overview } from "./overview.js";
import { Search } from "./search.js";
import { Source } from "./source.js";
import { applyTheme, flush, fromFragment, onChange, state, turnTheme, update, writeFragment } from "./state.js";
import { byId, clean, counted, make, showBytes, showTime, showTip } from "./text.js";
import { Timeline } from "./timeline.js";
import { giveUp } from "./unpack.js";

const SHORTEST = 20; // the view is at least so many ns wide
// With more calls and events of blocks, tiles out of view are decoded only if they are needed.
const MOST_BACKGROUND = 4e7;
const BETWEEN = 800; // ms between two pictures while tiles are decoded
const ARRIVAL = 5; // ms until the page looks again whether the browser has read a tile
const LEAST_TIMELINE = 60; // CSS pixels, as in the style sheet
const LEAST_PANEL = 60;
const HOLDERS = ["function", "line", "own"];
const TABS = [
  ["functions", "Functions"],
  ["flame", "Flame graph"],
  ["durations", "Durations"],
  ["call", "Call"],
  ["instant", "Instant"],
  ["source", "Source"],
  ["findings", "Findings"],
];

/** Returns the sizes that a picture depends on. */
function sizeNow() {
  return ["timeline-box", "panel"].map((id) => `${byId(id).clientWidth} x ${byId(id).clientHeight}`).join();
}

/** Lets the browser handle events; a timer would take at least 4 ms. */
const pause = (() => {
  const channel = new MessageChannel();
  /** @type {(() => void)[]} */
  const waiting = [];
  channel.port1.onmessage = () => waiting.shift()?.();
  return () =>
    new Promise((/** @type {(value?: undefined) => void} */ done) => {
      waiting.push(done);
      channel.port2.postMessage(0);
    });
})();

class App {
  /** @param {Data} data */
  constructor(data) {
    this.data = data;
    this.plain = { ...state, v0: 0, v1: Math.max(SHORTEST, data.duration) };
    Object.assign(state, this.plain, fromFragment(location.hash));
    if (!(state.v1 > state.v0)) Object.assign(state, { v0: this.plain.v0, v1: this.plain.v1 });
    if (state.call >= data.count) state.call = -1;
    if (!HOLDERS.includes(state.hold)) state.hold = "function";
    this.tabs = TABS.filter(([name]) => name !== "source" || data.head.source.length);
    if (!this.tabs.some(([name]) => name === state.tab)) state.tab = "functions";
    this.timeline = new Timeline(data, byId("timeline"));
    this.memory = new Memory(data, byId("memory"));
    this.overview = new Overview(data, byId("overview"));
    this.look = palette(data.head.functions, state.colour, false);
    /** Is called when all tiles are decoded. */
    this.done = () => {};
    /** The tiles that are being decoded. @type {Promise<void>|null} */
    this.decoding = null;
    this.frames = /** @type {number[]} */ ([]);
    this.drawnSize = ""; // of the last picture
    /** Where the pointer is above the timeline or the memory, CSS pixels from their left. @type {number|null} */
    this.pointer = null;
    this.pointedView = ""; // the view in which the pointer last moved, or to which the cursor was set since then
    const panes = byId("panes");
    /** @type {Record<string, HTMLElement>} */
    this.panes = {};
    for (const [name, text] of this.tabs) {
      this.panes[name] = make("div", {
        id: `pane-${name}`,
        class: "pane",
        role: "tabpanel",
        "aria-labelledby": `tab-${name}`,
      });
      panes.append(this.panes[name]);
      byId("tabs").append(
        make(
          "button",
          {
            id: `tab-${name}`,
            type: "button",
            role: "tab",
            "aria-controls": `pane-${name}`,
            onclick: () => update({ tab: name }),
          },
          text,
        ),
      );
    }
    byId("tabs").addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
      const by = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
      if (!by) return;
      const at = this.tabs.findIndex(([name]) => name === state.tab);
      const name = this.tabs[(at + by + this.tabs.length) % this.tabs.length][0];
      update({ tab: name });
      byId(`tab-${name}`).focus();
    });
    const go = (/** @type {number} */ call) => this.show(call);
    this.flame = new Flame(data, this.panes.flame, showTip);
    this.histogram = new Histogram(data, this.panes.durations, go, showTip);
    this.functions = new Functions(data, this.panes.functions, this.histogram);
    this.source = data.head.source.length ? new Source(data.head.source, this.panes.source, false) : null;
    new Findings(data, this.panes.findings, go);
    if (data.head.findings.length) byId("tab-findings").append(` (${data.head.findings.length})`);
    this.call = new CallDetail(data, this.panes.call, this.histogram, go, (file, line) => this.openSource(file, line));
    this.instant = new InstantDetail(data, this.panes.instant, go);
    this.search = new Search(data, this.timeline, go);
    this.fillHead();
    this.setPalette();
    this.bind();
    onChange((changed) => this.draw(changed));
  }

  fillHead() {
    const { head } = this.data;
    byId("title").textContent = clean(head.title);
    byId("summary").textContent = head.summary;
    const summary = byId("notes");
    summary.textContent = head.notes.lost
      ? `${counted(head.notes.lost, "event")} lost`
      : head.notes.unsure || "nothing lost";
    summary.className = head.notes.lost || head.notes.unsure ? "bad" : "good";
    byId("limits").replaceChildren(
      ...[
        ...head.notes.limits.map((/** @type {string} */ text) => clean(text)),
        head.notes.facts.map(clean).join(", "),
      ].map((text, n) => make("span", { class: head.notes.lost && n === 0 ? "bad" : "", dir: "auto" }, text)),
    );
    byId("limits").title = head.notes.limits.map(clean).join("\n");
    byId("memory-box").hidden = !this.data.blocks.count;
  }

  setPalette() {
    const dark = applyTheme();
    this.look = palette(this.data.head.functions, state.colour, dark);
    byId("colour").value = state.colour;
    const used = new Set(this.data.head.functions.area);
    const waiting = this.waitingLegend();
    byId("legend").replaceChildren(
      ...(state.colour === "area" ? AREA_NAMES : []).flatMap((name, area) => {
        if (!used.has(area)) return [];
        const swatch = make("i");
        swatch.style.background = areaColour(area, dark);
        return [make("span", {}, swatch, name)];
      }),
      ...waiting,
    );
  }

  /** What is hatched, and why. */
  waitingLegend() {
    const { waiting } = this.data;
    if (!waiting.known) return [];
    if (!waiting.recorded)
      return [make("span", {}, make("i", { class: "waiting" }), "hatched: another thread had the interpreter's lock")];
    const met = new Set(waiting.waits.flatMap(({ kind }) => [...new Set(kind)]));
    return waiting.words.flatMap((word, kind) => {
      if (!met.has(kind)) return [];
      const swatch = make("i");
      const colour = cssOf(waitColour(this.look, kind));
      swatch.style.background = `repeating-linear-gradient(135deg, var(--back) 0 3px, ${colour} 3px 5px)`;
      return [make("span", {}, swatch, `waits for ${word}`)];
    });
  }

  /** @param {Partial<typeof state>} changed */
  draw(changed) {
    const before = performance.now();
    if ("theme" in changed || "colour" in changed) this.setPalette();
    if ("folded" in changed) this.timeline.relay();
    this.clampView();
    this.search.apply();
    const { look } = this;
    this.drawnSize = sizeNow();
    this.followView();
    const wide = byId("timeline-box").clientWidth;
    const high = byId("timeline-box").clientHeight;
    this.timeline.draw(wide, high, look);
    this.pointedView = this.viewNow();
    if (this.data.blocks.count) this.memory.draw(wide, byId("memory-box").clientHeight, look, this.timeline.cursor);
    this.overview.draw(wide, look);
    for (const [name] of this.tabs) {
      const here = name === state.tab;
      this.panes[name].hidden = !here;
      const tab = byId(`tab-${name}`);
      tab.setAttribute("aria-selected", String(here));
      tab.tabIndex = here ? 0 : -1;
    }
    if (state.tab === "functions") {
      if (!state.range || this.data.complete) this.functions.draw();
    } else if (state.tab === "call") this.call.draw();
    else if (state.tab === "instant") this.instant.draw();
    else if (state.tab === "source") this.source?.draw(look.dark);
    else if (state.tab !== "findings" && this.data.complete) {
      if (state.tab === "flame") this.drawFlame(changed);
      else this.histogram.draw(look);
    }
    byId("hold").value = state.hold;
    if (byId("search") !== document.activeElement) byId("search").value = state.search;
    this.frames.push(performance.now() - before);
    if (this.frames.length > 1000) this.frames.shift();
    this.wantTiles().catch(giveUp);
    this.remember();
  }

  /**
   * Draws the flame graph, unless only the view has changed, which it does not depend on.
   * @param {Partial<typeof state>} changed
   */
  drawFlame(changed) {
    const keys = Object.keys(changed);
    if (this.flame.key && keys.length && keys.every((key) => ["v0", "v1", "scroll", "folded", "call"].includes(key)))
      return;
    this.flame.draw(this.look);
  }

  viewNow() {
    return [state.v0, state.v1, state.scroll, ...state.folded].join();
  }

  /** Takes back what was said about the place under the pointer, if the view has moved and the pointer has not. */
  followView() {
    if (this.pointer === null || this.pointedView === this.viewNow()) return;
    this.pointAt(this.pointer);
    this.timeline.hover = -1;
    showTip(null, 0, 0);
  }

  /** The time under the pointer; null: it is not above the time in view. @param {number|null} x CSS pixels */
  timeUnder(x) {
    return x !== null && x >= GUTTER && x <= GUTTER + this.timeline.span ? this.timeline.timeAt(x) : null;
  }

  /** Puts the cursor under the pointer. @param {number|null} x CSS pixels */
  pointAt(x) {
    this.pointer = x;
    this.timeline.cursor = this.timeUnder(x);
  }

  clampView() {
    const whole = this.plain.v1;
    let span = Math.max(SHORTEST, Math.min(state.v1 - state.v0, whole * 1.1));
    if (!Number.isFinite(span)) span = whole;
    let v0 = Math.max(-span * 0.5, Math.min(state.v0, whole - span * 0.5));
    if (!Number.isFinite(v0)) v0 = 0;
    state.v0 = v0;
    state.v1 = v0 + span;
  }

  remember() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => writeFragment(this.plain), 250);
  }

  /** @param {number} factor @param {number} time keeps its place */
  zoom(factor, time) {
    const span = Math.max(SHORTEST, Math.min((state.v1 - state.v0) * factor, this.plain.v1 * 1.1));
    const part = (time - state.v0) / (state.v1 - state.v0);
    update({ v0: time - part * span, v1: time - part * span + span });
  }

  /** @param {number} part of the view's width */
  pan(part) {
    const by = part * (state.v1 - state.v0);
    update({ v0: state.v0 + by, v1: state.v1 + by });
  }

  /** Selects a call and moves it into view. @param {number} call */
  show(call) {
    const { data } = this;
    const begin = data.start[call];
    const span = state.v1 - state.v0;
    const patch = /** @type {Partial<typeof state>} */ ({ call, fn: data.func[call] });
    const wide = (data.dur[call] / span) * this.timeline.span;
    if (begin < state.v0 || begin + data.dur[call] > state.v1 || wide < 3) {
      const want = Math.max(SHORTEST, wide < 3 || data.dur[call] > span ? data.dur[call] * 8 : span);
      // Near an end of the run the call is not in the middle: time outside of the run would show nothing.
      patch.v0 = Math.max(0, Math.min(begin + data.dur[call] / 2 - want / 2, this.plain.v1 - want));
      patch.v1 = patch.v0 + want;
    }
    this.reveal(call, patch);
  }

  /**
   * Changes the state so that the row of a call is in view.
   * @param {number} call
   * @param {Partial<typeof state>} patch
   */
  reveal(call, patch) {
    const { data, timeline } = this;
    const thread = data.rows[data.rowOf(call)].thread;
    if (state.folded.includes(thread)) patch.folded = state.folded.filter((each) => each !== thread);
    Object.assign(state, patch);
    timeline.relay();
    const place = timeline.placeOf(call);
    if (place && (place.y < RULER || place.y > timeline.raster.high - 20))
      patch.scroll = state.scroll + place.y - timeline.raster.high / 2;
    update(patch);
  }

  /** Fits a call into the view. @param {number} call */
  fitCall(call) {
    const { start, dur } = this.data;
    const span = Math.max(SHORTEST, dur[call] * 1.1);
    const v0 = start[call] + dur[call] / 2 - span / 2;
    this.reveal(call, { v0, v1: v0 + span, call, fn: this.data.func[call] });
  }

  /** @param {number} call */
  callWords(call) {
    const { data } = this;
    const words = wordsOf(data, call);
    if (data.complete && data.dur[call] < data.duration / 2) words.splice(3, 0, this.costWords(call));
    return words;
  }

  /** @param {number} call */
  costWords(call) {
    const { data } = this;
    let text = `self ${showTime(data.selfOf(call))}`;
    if (data.waiting.known) {
      const why = data.waiting.recorded ? "" : " (another thread had the interpreter's lock)";
      text += `; waited ${showTime(data.waitedOf(call))}${why}`;
    }
    if (data.blocks.count) {
      const memory = data.memoryOf(call);
      text += `; allocated ${showBytes(memory.below)} in ${counted(memory.blocksBelow, "block")}, itself ${showBytes(memory.bytes)}`;
    }
    return text;
  }

  // ---- Tiles -----------------------------------------------------------------------------------

  /** Has tiles decoded, if that does not happen already. @returns {Promise<void>} */
  wantTiles() {
    this.decoding ??= this.decodeTiles().finally(() => (this.decoding = null));
    return this.decoding;
  }

  /** Decodes tiles one after the other, those in view first. */
  async decodeTiles() {
    let shown = performance.now();
    let decoded = false;
    let changed = false; // since the last picture, in what is in view
    for (;;) {
      const next = this.nextTile();
      if (!next) break;
      changed = (await next()) || changed;
      decoded = true;
      // To draw after each tile would take longer than to decode the tile.
      if (changed && performance.now() - shown > BETWEEN) {
        update({});
        shown = performance.now();
        changed = false;
      }
      await pause();
    }
    if (this.data.complete && !this.finished) {
      this.finished = true;
      performance.mark("whole");
      this.data.tiles.end();
      this.done();
    }
    if (decoded) update({});
  }

  /** Returns the tiles of calls in view that are not decoded. */
  missing() {
    const { data } = this;
    const found = new Set();
    for (const { row } of this.timeline.drawn) {
      const [from, to] = rangeInView(data, data.rows[row], state.v0, state.v1);
      for (let tile = Math.floor(from / data.tileRows); tile * data.tileRows < to; tile++)
        if (data.callTiles[tile] === 0) found.add(tile);
    }
    return [...found];
  }

  /**
   * Returns what to do next: its result says whether the picture changes. Null: nothing.
   * @returns {(() => Promise<boolean>)|null}
   */
  nextTile() {
    const { data } = this;
    const calls = this.missing();
    const rest = data.count + data.blocks.events <= MOST_BACKGROUND || state.tab !== "functions" || !!state.range;
    data.ahead(calls, rest);
    const inView = calls.find((n) => data.tiles.here(`c${n}`));
    if (inView !== undefined) return () => data.callTile(inView).then(() => true);
    const block = rest ? data.blockTiles.indexOf(0) : -1;
    if (block >= 0 && data.tiles.here(`m${block}`))
      return () => data.blockTile(block).then(() => data.blocks.eventsHere === data.blocks.events);
    const call = rest ? data.callTiles.indexOf(0) : -1;
    if (call >= 0 && data.tiles.here(`c${call}`)) return () => data.callTile(call).then(() => false);
    if (!calls.length && block < 0 && call < 0) return null;
    return () => new Promise((done) => setTimeout(() => done(false), ARRIVAL));
  }

  // ---- The mouse and the keys ------------------------------------------------------------------

  bind() {
    const { timeline } = this;
    const canvas = /** @type {HTMLCanvasElement} */ (byId("timeline"));
    const memory = /** @type {HTMLCanvasElement} */ (byId("memory"));
    for (const each of [canvas, memory]) {
      each.addEventListener(
        "wheel",
        (event) => {
          event.preventDefault();
          const unit = event.deltaMode === 1 ? 16 : 1;
          if (event.offsetX < GUTTER && each === canvas) update({ scroll: state.scroll + event.deltaY * unit });
          else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY))
            this.pan(((event.deltaX || event.deltaY) * unit) / timeline.span);
          else this.zoom(1.0015 ** (event.deltaY * unit * (event.ctrlKey ? 5 : 1)), timeline.timeAt(event.offsetX));
        },
        { passive: false },
      );
      this.bindDrag(each, each === memory);
      each.addEventListener("pointerleave", () => {
        this.pointAt(null);
        timeline.hover = -1;
        showTip(null, 0, 0);
        update({});
      });
    }
    canvas.addEventListener("dblclick", (event) => {
      const call = timeline.under(event.offsetX, event.offsetY);
      if (call >= 0) this.fitCall(call);
    });
    this.bindOverview();
    byId("search").addEventListener("input", () => update({ search: byId("search").value }));
    byId("search").addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
      if (event.key === "Enter") this.search.next(!event.shiftKey);
    });
    byId("before").addEventListener("click", () => this.search.next(false));
    byId("after").addEventListener("click", () => this.search.next(true));
    byId("colour").addEventListener("change", () => update({ colour: byId("colour").value }));
    byId("hold").addEventListener("change", () => update({ hold: byId("hold").value }));
    byId("fit").addEventListener("click", () => this.fitAll());
    byId("theme").addEventListener("click", turnTheme);
    byId("help").addEventListener("click", () => byId("keys").showModal());
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => update({ theme: state.theme }));
    const box = new ResizeObserver(() => {
      this.tellDivider();
      if (this.drawnSize === sizeNow()) return; // the first call says only that it observes
      this.flame.key = "";
      update({});
    });
    box.observe(byId("timeline-box"));
    box.observe(byId("panel"));
    window.addEventListener("hashchange", () => {
      update({ ...this.plain, ...fromFragment(location.hash), folded: fromFragment(location.hash).folded || [] });
    });
    window.addEventListener("beforeprint", () => flush());
    this.bindDivider();
    const centre = () => this.timeUnder(this.pointer) ?? (state.v0 + state.v1) / 2;
    bindKeys([
      { keys: ["w", "+", "="], shown: "W  +", what: "zoom in", run: () => this.zoom(0.7, centre()) },
      { keys: ["s", "-"], shown: "S  -", what: "zoom out", run: () => this.zoom(1 / 0.7, centre()) },
      { keys: ["a", "ArrowLeft"], shown: "A  \u2190", what: "earlier", run: () => this.pan(-0.2) },
      { keys: ["d", "ArrowRight"], shown: "D  \u2192", what: "later", run: () => this.pan(0.2) },
      {
        keys: ["ArrowUp"],
        shown: "\u2191  \u2193",
        what: "scroll the lanes",
        run: () => update({ scroll: state.scroll - 51 }),
      },
      { keys: ["ArrowDown"], shown: "", what: "", run: () => update({ scroll: state.scroll + 51 }) },
      { keys: ["0"], shown: "0", what: "the whole run, as the button fit does", run: () => this.fitAll() },
      {
        keys: ["f"],
        shown: "F",
        what: "fit the selected call",
        run: () => {
          if (state.call >= 0) this.fitCall(state.call);
        },
      },
      { keys: ["p"], shown: "P", what: "go to the caller of the selected call", run: () => this.step("parent") },
      { keys: ["c"], shown: "C", what: "go to the first call inside the selected call", run: () => this.step("child") },
      {
        keys: ["]", "."],
        shown: "[  ]  or  ,  .",
        what: "previous, next call in the same row",
        run: () => this.step("after"),
      },
      { keys: ["[", ","], shown: "", what: "", run: () => this.step("before") },
      {
        keys: ["Enter"],
        shown: "Enter",
        what: "what is running and what is live at the pointer, or in the middle of the view",
        run: () => this.pick(centre()),
      },
      { keys: ["/"], shown: "/", what: "search", run: () => byId("search").focus() },
      { keys: ["n"], shown: "N  Shift+N", what: "next hit, previous hit", run: () => this.search.next(true) },
      { keys: ["n+"], shown: "", what: "", run: () => this.search.next(false) },
      {
        keys: ["m"],
        shown: "M",
        what: "the peak of memory",
        run: () => {
          if (this.data.head.peak) this.pick(this.data.head.peak[0]);
        },
      },
      {
        keys: ["b"],
        shown: "B",
        what: "memory by function, by line, by own line",
        run: () => update({ hold: HOLDERS[(HOLDERS.indexOf(state.hold) + 1) % HOLDERS.length] }),
      },
      { keys: ["t"], shown: "T", what: "light or dark", run: turnTheme },
      { keys: ["?"], shown: "?", what: "this help", run: () => byId("keys").showModal() },
      {
        keys: ["Escape"],
        shown: "Esc",
        what: "clear the selection and the search; in a field: clear its text",
        run: () => update({ call: -1, range: null, instant: null, brush: null, search: "" }),
      },
    ]);
  }

  bindDivider() {
    const divider = byId("divider");
    divider.addEventListener("pointerdown", (/** @type {PointerEvent} */ event) =>
      divider.setPointerCapture(event.pointerId),
    );
    divider.addEventListener("pointermove", (/** @type {PointerEvent} */ event) => {
      if (divider.hasPointerCapture(event.pointerId)) this.sizePanel(innerHeight - event.clientY);
    });
    divider.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
      const by = event.key === "ArrowUp" ? 20 : event.key === "ArrowDown" ? -20 : 0;
      if (!by || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      event.stopPropagation(); // at other places these keys scroll the lanes
      this.sizePanel(byId("panel").offsetHeight + by);
    });
  }

  /** The height of the panel that leaves the timeline just enough. */
  mostPanel() {
    return Math.max(LEAST_PANEL, byId("panel").offsetHeight + byId("timeline-box").offsetHeight - LEAST_TIMELINE);
  }

  /** @param {number} high CSS pixels; the style sheet makes it less if the window becomes too small for it */
  sizePanel(high) {
    byId("panel").style.height = `${Math.round(Math.max(LEAST_PANEL, Math.min(this.mostPanel(), high)))}px`;
  }

  tellDivider() {
    const divider = byId("divider");
    divider.setAttribute("aria-valuemin", String(LEAST_PANEL));
    divider.setAttribute("aria-valuemax", String(this.mostPanel()));
    divider.setAttribute("aria-valuenow", String(byId("panel").offsetHeight));
  }

  /** Shows a line of the source. @param {string} file @param {number} line */
  openSource(file, line) {
    update({ tab: "source" });
    this.source?.go(file, line);
  }

  /** @param {number} time */
  pick(time) {
    const instant = Math.max(0, Math.min(this.data.duration, Math.floor(time)));
    update({ instant, tab: state.tab === "flame" && state.unit === "live" ? "flame" : "instant" });
  }

  /** @param {"parent"|"child"|"before"|"after"} where */
  step(where) {
    const { data } = this;
    let call = state.call;
    if (call < 0) call = data.openAt((state.v0 + state.v1) / 2)[0] ?? -1;
    else if (where === "parent") call = data.parentOf(call);
    else if (where === "child") call = data.childrenOf(call)[0] ?? -1;
    else {
      const row = data.rows[data.rowOf(call)];
      call += where === "after" ? 1 : -1;
      if (call < row.first || call >= row.end) call = -1;
    }
    if (call >= 0) this.show(call);
  }

  fitAll() {
    update({ v0: this.plain.v0, v1: this.plain.v1 });
  }

  bindOverview() {
    const canvas = byId("overview");
    const move = (/** @type {PointerEvent} */ event) => {
      const half = (state.v1 - state.v0) / 2;
      const time = this.overview.timeAt(event.offsetX);
      update({ v0: time - half, v1: time + half });
    };
    canvas.addEventListener("pointerdown", (/** @type {PointerEvent} */ event) => {
      canvas.setPointerCapture(event.pointerId);
      move(event);
    });
    canvas.addEventListener("pointermove", (/** @type {PointerEvent} */ event) => {
      if (canvas.hasPointerCapture(event.pointerId)) move(event);
    });
  }

  /** @param {HTMLCanvasElement} canvas @param {boolean} memory */
  bindDrag(canvas, memory) {
    const { timeline } = this;
    /** @type {null|{x: number, y: number, v0: number, v1: number, scroll: number, range: boolean, moved: boolean}} */
    let from = null;
    canvas.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      canvas.focus({ preventScroll: true });
      canvas.setPointerCapture(event.pointerId);
      from = {
        x: event.offsetX,
        y: event.offsetY,
        v0: state.v0,
        v1: state.v1,
        scroll: state.scroll,
        range: event.shiftKey,
        moved: false,
      };
    });
    canvas.addEventListener("pointermove", (event) => {
      if (!from) {
        this.point(event, memory);
        return;
      }
      this.pointer = event.offsetX;
      if (Math.abs(event.offsetX - from.x) + Math.abs(event.offsetY - from.y) > 3) from.moved = true;
      if (!from.moved) return;
      showTip(null, 0, 0);
      if (from.range) {
        this.pointAt(event.offsetX);
        timeline.drag = this.rangeOf(from.x, event.offsetX);
        update({});
      } else {
        const by = ((from.x - event.offsetX) * (from.v1 - from.v0)) / timeline.span;
        update({
          v0: from.v0 + by,
          v1: from.v1 + by,
          ...(memory ? {} : { scroll: from.scroll + from.y - event.offsetY }),
        });
      }
    });
    canvas.addEventListener("pointerup", (event) => {
      const begun = from;
      from = null;
      timeline.drag = null;
      if (!begun) return;
      if (begun.range && begun.moved) {
        const range = this.rangeOf(begun.x, event.offsetX);
        update({ range, tab: state.tab === "flame" ? "flame" : "functions" });
      } else if (!begun.moved) this.click(event, memory);
    });
    canvas.addEventListener("pointercancel", () => {
      from = null;
      timeline.drag = null;
    });
  }

  /** @param {number} a @param {number} b @returns {[number, number]} */
  rangeOf(a, b) {
    const [x0, x1] = [Math.min(a, b), Math.max(a, b)].map((x) =>
      Math.round(Math.max(0, Math.min(this.data.duration, this.timeline.timeAt(x)))),
    );
    return [x0, Math.max(x1, x0 + 1)];
  }

  /** @param {PointerEvent} event @param {boolean} memory */
  point(event, memory) {
    const { timeline, data } = this;
    const { offsetX: x, offsetY: y } = event;
    this.pointAt(x);
    this.pointedView = this.viewNow();
    timeline.hover = -1;
    if (memory) {
      const band = this.memory.under(x, y);
      if (x < GUTTER || !data.complete) showTip(null, 0, 0);
      else {
        const bands = data.blocks.bandsAt(timeline.timeAt(x));
        const words = [`${showBytes(bands.reduce((a, b) => a + b, 0))} live`];
        if (band >= 0) words.unshift(`${this.memory.names[band]}: ${showBytes(bands[band])}`);
        showTip(words, event.clientX, event.clientY);
      }
    } else {
      const call = timeline.under(x, y);
      timeline.hover = call;
      const words = call >= 0 ? [...timeline.waitWords(call, x), ...this.callWords(call)] : timeline.tenureWords(x, y);
      showTip(words, event.clientX, event.clientY);
    }
    update({});
  }

  /** @param {PointerEvent} event @param {boolean} memory */
  click(event, memory) {
    const { timeline } = this;
    const { offsetX: x, offsetY: y } = event;
    if (x < GUTTER) {
      const lane = memory ? undefined : timeline.laneAt(y);
      const scroll = memory ? null : timeline.scrollOf(y);
      if (scroll !== null) update({ scroll });
      else if (lane && lane.kind === "thread") {
        const folded = state.folded.includes(lane.thread)
          ? state.folded.filter((each) => each !== lane.thread)
          : [...state.folded, lane.thread];
        update({ folded });
      }
      return;
    }
    const call = memory ? -1 : timeline.under(x, y);
    if (call >= 0 && event.altKey) {
      const cause = this.data.causeOf(call, timeline.timeAt(x));
      if (cause >= 0) this.reveal(cause, { call: cause, fn: this.data.func[cause], tab: "call" });
    } else if (call >= 0)
      update({ call, fn: this.data.func[call], brush: null, tab: state.tab === "durations" ? "durations" : "call" });
    else this.pick(timeline.timeAt(x));
  }
}

async function start() {
  const data = await Data.open();
  const app = new App(data);
  const whole = new Promise((done) => (app.done = () => done(undefined)));
  const rest =
    document.readyState === "loading"
      ? new Promise((done) => document.addEventListener("DOMContentLoaded", done))
      : null;
  flush();
  performance.mark("first", { detail: app.drawnSize });
  // From here on tiles are decoded as soon as the browser has read them.
  if (rest) await rest;
  await data.links();
  app.timeline.relay(); // now it is known whether there is a lane for the lock
  app.setPalette();
  await app.wantTiles();
  await app.wantTiles(); // if all tiles were decoded before the links, nothing said so
  /** Access for tests, and for the browser's console. */
  Object.assign(window, {
    eventprofPage: {
      app,
      data,
      state,
      update,
      flush,
      whole,
      under: (/** @type {number} */ x, /** @type {number} */ y) => app.timeline.under(x, y),
      bandsAt: (/** @type {number} */ time) => [...data.blocks.bandsAt(time)],
      live: (/** @type {number} */ time) => liveByHolder(data, time),
      sums: (/** @type {number} */ t0, /** @type {number} */ t1) => data.sums(t0, t1),
      frames: app.frames,
    },
  });
}

start().catch(giveUp);
