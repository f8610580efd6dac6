// The loudness around the phone while the page is open, from the microphone. Only a level leaves this file: no sound is
// recorded or kept.
import { button, element, paragraph } from "../page.js";
import { fill } from "../words.js";

export const id = "loudness";
export const title = (words) => words.phone.loudness.title;
export const whole = false;

// The quietest level that 16 bits can hold, in decibels. Levels are counted from there, and are not calibrated.
const QUIETEST = -96;
const SAMPLE_MILLISECONDS = 500;

export const fits = ({ quantity, unit }) => quantity === "sound_pressure" || /^dB/.test(unit);

// Return the level of samples between -1 and 1, in whole decibels.
export function level(samples) {
  const power = samples.reduce((sum, value) => sum + value * value, 0) / samples.length;
  return Math.max(0, Math.round(10 * Math.log10(Math.max(power, 1e-12)) - QUIETEST));
}

export function show({ send, words }) {
  const say = words.phone.loudness;
  const text = paragraph();
  const start = button(say.start, () => listen().catch(refused));
  let sound = null;
  let timer = null;

  const refused = () => {
    text.textContent = say.refused;
  };

  async function listen() {
    const plain = { echoCancellation: false, noiseSuppression: false, autoGainControl: false };
    const media = await navigator.mediaDevices.getUserMedia({ audio: plain });
    sound = { media, context: new AudioContext() };
    await sound.context.resume();
    const analyser = sound.context.createAnalyser();
    sound.context.createMediaStreamSource(media).connect(analyser);
    const samples = new Float32Array(analyser.fftSize);
    start.hidden = true;
    timer = setInterval(() => {
      analyser.getFloatTimeDomainData(samples);
      const value = level(samples);
      text.textContent = fill(say.level, { level: value });
      send({ do: "sample", value });
    }, SAMPLE_MILLISECONDS);
  }

  function stop() {
    clearInterval(timer);
    send({ do: "sample", value: null });
    for (const track of sound?.media.getTracks() ?? []) track.stop();
    sound?.context.close();
    sound = null;
  }

  return { element: element("section", { className: "source" }, text, start), update() {}, stop };
}
