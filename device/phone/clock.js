// The phone's clocks. Tests replace this file by one whose time runs faster.

// Seconds since 1970, by the phone's clock.
export const unixSeconds = () => Math.floor(Date.now() / 1000);

// Milliseconds that only grow while this page lives.
export const monotonicMilliseconds = () => Math.floor(performance.now());
