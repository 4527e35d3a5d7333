// Search for functions by name, module or file:line. The calls of functions that were found stay bright, others fade.

import { matcher } from "./functions.js";
import { state } from "./state.js";
import { byId, counted } from "./text.js";

export class Search {
  /**
   * @param {import("./data.js").Data} data
   * @param {import("./timeline.js").Timeline} timeline
   * @param {(call: number) => void} go
   */
  constructor(data, timeline, go) {
    this.data = data;
    this.timeline = timeline;
    this.go = go;
    this.text = "";
  }

  apply() {
    if (this.text === state.search) return;
    this.text = state.search;
    const { data } = this;
    if (!state.search.trim()) {
      this.timeline.hits = null;
      byId("found").textContent = "";
      return;
    }
    const matches = matcher(data, state.search);
    const hits = new Uint8Array(data.none + 1);
    let functions = 0;
    let calls = 0;
    for (let f = 0; f < data.none; f++) {
      if (!matches(f)) continue;
      hits[f] = 1;
      functions++;
      calls += data.head.functions.calls[f] + data.head.functions.resumes[f];
    }
    this.timeline.hits = hits;
    byId("found").textContent = functions
      ? `${counted(functions, "function")}, ${counted(calls, "call")}`
      : "nothing found among functions";
  }

  /** Goes to the next call of a function that was found, or to the previous one. @param {boolean} forward */
  next(forward) {
    const { hits } = this.timeline;
    if (!hits) return;
    const { data } = this;
    const from = state.call >= 0 && hits[data.func[state.call]] ? data.start[state.call] : state.v0 - 1;
    let call = this.timeline.nextHit(hits, from, forward);
    if (call < 0) call = this.timeline.nextHit(hits, forward ? -1 : data.duration + 1, forward); // from the other end
    if (call >= 0) this.go(call);
  }
}
