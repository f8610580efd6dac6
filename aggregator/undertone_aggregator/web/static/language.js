// Before the chart's library: it takes the browser's language for numbers, and fails where that is none, as in WebKitGTK
// with the locale C.
try {
  new Intl.NumberFormat(navigator.language);
} catch {
  Object.defineProperty(navigator, "language", { value: "en", configurable: true });
}
