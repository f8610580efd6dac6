// The phone's clocks. Tests replace this file by a copy whose time runs faster.

// Seconds since 1970, by the phone's clock.
export const unixSeconds = () => Math.floor(Date.now() / 1000);

// Milliseconds of a counter that only grows while this page is open.
export const monotonicMilliseconds = () => Math.floor(performance.now());
