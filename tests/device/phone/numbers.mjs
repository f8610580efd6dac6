// What the app makes of numbers as people write them: answers to lines of JSON on stdin.
import { createInterface } from 'node:readline';
import { doubt, parse } from '../../../device/phone/sources/number.js';

for await (const line of createInterface({ input: process.stdin })) {
    const [text, words, range] = JSON.parse(line);
    const value = parse(text, words);
    console.log(JSON.stringify(Number.isNaN(value) ? null : [value, doubt(value, range)]));
}
