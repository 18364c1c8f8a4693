// A browser may name a language that is no BCP 47 tag: "en-US@posix" of a POSIX locale. Intl refuses it, and uPlot,
// which asks Intl while it is loaded, would be lost with all charts. Such a browser counts as English.
try {
  new Intl.NumberFormat(navigator.language);
} catch {
  Object.defineProperty(navigator, "language", { value: "en-US", configurable: true });
}
