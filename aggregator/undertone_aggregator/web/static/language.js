// This runs before the chart's library. The library writes numbers in the browser's language, and fails if the browser
// gives no valid language, as WebKitGTK does with the locale C.
try {
  new Intl.NumberFormat(navigator.language);
} catch {
  Object.defineProperty(navigator, "language", { value: "en", configurable: true });
}
