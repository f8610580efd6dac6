// A number that the person enters: a meter's reading, a counter, anything.
import { button, element, moment, number as format, paragraph } from '../page.js';

export const id = 'number';
export const title = 'I enter the number myself';
export const whole = true;

export const fits = () => true;

export function show({ measures, send }) {
    const input = element('input', { type: 'number', step: 1, inputMode: 'numeric', required: true, id: 'number' });
    const label = element('label', { htmlFor: 'number' }, `Your number now, in ${measures.unit}`);
    const entered = paragraph();
    const submit = (event) => {
        event.preventDefault();
        if (!input.reportValidity()) return;
        send({ do: 'enter', number: Number(input.value) });
        input.value = '';
    };
    const form = element('form', { onsubmit: submit }, label, element('div', { className: 'row' }, input, button('Save')));
    form.querySelector('button').type = 'submit';
    const update = ({ status }) => {
        const newest = status.entries.at(-1);
        const slot = status.campaign?.slot_seconds ?? measures.slot_seconds;
        if (newest && Math.floor(newest[0] / slot) === Math.floor(status.time / slot)) {
            const end = (Math.floor(status.time / slot) + 1) * slot;
            entered.textContent =
                `You entered ${format(newest[1])} ${measures.unit}. It stays on this phone. After ${moment(end)}, when you` +
                ` have the app open, the phone sends a blurred version.`;
        } else {
            entered.textContent =
                'You have entered nothing for this period. If you enter nothing, the phone blurs and sends a fixed' +
                ' stand-in value, so that nobody can see whether you did.';
        }
    };
    return { element: element('section', { className: 'source' }, form, entered), update, stop() {} };
}
