import js from "@eslint/js";

export default [
  js.configs.recommended,
  {
    files: ["viewer/*.js"],
    languageOptions: {
      ecmaVersion: 2024,
      sourceType: "module",
      // What browsers give; tsc checks how it is used.
      globals: Object.fromEntries(
        [
          "Blob",
          "DecompressionStream",
          "Event",
          "HTMLElement",
          "HTMLInputElement",
          "HTMLSelectElement",
          "HTMLTextAreaElement",
          "ImageData",
          "MessageChannel",
          "ResizeObserver",
          "Response",
          "TextDecoder",
          "URL",
          "Worker",
          "atob",
          "clearTimeout",
          "console",
          "document",
          "history",
          "innerHeight",
          "innerWidth",
          "location",
          "matchMedia",
          "performance",
          "requestAnimationFrame",
          "self",
          "setTimeout",
          "window",
        ].map((name) => [name, "readonly"]),
      ),
    },
    rules: {
      eqeqeq: "error",
      "no-eval": "error",
      "no-implied-eval": "error",
      "no-restricted-properties": [
        "error",
        { property: "innerHTML", message: "texts never become markup" },
        { property: "outerHTML", message: "texts never become markup" },
        { property: "insertAdjacentHTML", message: "texts never become markup" },
      ],
      // prettier wraps code, not comments; a text may be longer.
      "max-len": ["error", { code: 120, ignoreStrings: true, ignoreTemplateLiterals: true, ignoreRegExpLiterals: true }],
      "no-shadow": "off",
      "no-control-regex": "off",
      "no-misleading-character-class": "off",
      "no-empty": ["error", { allowEmptyCatch: true }],
      "prefer-const": "error",
      "no-var": "error",
    },
  },
];
