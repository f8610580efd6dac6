// The sources of a phone's readings. A source is one file with these exports, and a line here:
//
//     id               a word that the phone keeps
//     title(words)     what the person chooses, in the person's language
//     whole            true if a reading is entered for a whole slot and waits on file for the slot's end;
//                      false if the source gives samples while the page is open
//     fits(measures)   true if the source can give what the campaign measures
//     show(context)    builds the source's part of the page: {element, update(view), stop()};
//                      context has measures, words and send: send({do: 'enter', number}) or
//                      send({do: 'sample', value}) gives a whole number, value null for none
import * as loudness from "./loudness.js";
import * as number from "./number.js";

export const SOURCES = [loudness, number];
