// navigator.language may be no BCP 47 tag, such as "en-US@posix" of a POSIX locale. Intl raises an error for it, and
// uPlot, which uses Intl while loading, would fail. Such a browser counts as English.
try {
  new Intl.NumberFormat(navigator.language);
} catch {
  Object.defineProperty(navigator, "language", { value: "en-US", configurable: true });
}
