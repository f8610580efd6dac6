// Converts bytes to hexadecimal text and back, because bytes pass between JavaScript and MicroPython in this form.

const DIGITS = Array.from({ length: 256 }, (_, byte) => byte.toString(16).padStart(2, "0"));

export const toHex = (bytes) => Array.from(bytes, (byte) => DIGITS[byte]).join("");

export const fromHex = (text) =>
  Uint8Array.from({ length: text.length / 2 }, (_, i) => parseInt(text.substr(2 * i, 2), 16));
