// The findings of `analyze`, each with links to calls on the timeline.

import { clean, make, showCount } from "./text.js";

export class Findings {
  /** @param {import("./data.js").Data} data @param {HTMLElement} pane @param {(call: number) => void} go */
  constructor(data, pane, go) {
    const { findings } = data.head;
    const link = (/** @type {string} */ text, /** @type {number} */ call) =>
      call < 0
        ? make("bdi", {}, text)
        : make("button", { type: "button", class: "link", onclick: () => go(call) }, make("bdi", {}, text));
    const box = make("div", { class: "scroll text" });
    if (!findings.length) box.append(make("p", { class: "soft" }, "Nothing was found that looks wrong."));
    for (const { claim, advice, command, evidence, call } of findings) {
      box.append(
        make(
          "section",
          { class: "finding" },
          make("h3", {}, make("bdi", {}, clean(claim))),
          ...(call >= 0 ? [make("div", {}, link("show this call", call))] : []),
          make(
            "ul",
            {},
            ...evidence.map((/** @type {{name: string, place: string, calls: number|null, call: number}} */ each) =>
              make(
                "li",
                {},
                link(clean(each.place), each.call),
                " ",
                make("bdi", { class: "soft" }, each.name === each.place ? "" : clean(each.name)),
                each.calls ? `, ${showCount(each.calls)} calls` : "",
              ),
            ),
          ),
          make("div", {}, clean(advice)),
          make("code", { class: "soft" }, clean(command)),
        ),
      );
    }
    pane.append(box);
  }
}
