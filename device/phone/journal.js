// Named byte strings on the phone's disk: the device's files, each written completely or not at all.
//
// A journal is two files of the origin's private file system, opened for this tab alone. One of them is current: each
// write appends a record to it and flushes, so that a record that `write` has accepted survives a power cut. A record
// is live until a later one replaces or deletes it. After a deletion, on request, at an opening, or when the current
// file is large, the other file becomes current if some records are not live: it gets the live ones, and its header
// last. Then the old file is emptied, so that neither file has what was replaced or deleted.
//
//     file    'UTJ1', u32 generation, u32 CRC of both (one sector, so that a disk writes it completely or not at all);
//             then records; the file of the higher generation is current
//     record  u32 length of the body, u32 CRC of these 4 bytes, u32 CRC of the body; body: u16 length of the name, the
//             name, 1 and the content, or 0 for a deletion
//
// Numbers are big-endian. Only the last record can be incomplete, because each write waits for the one before. An
// incomplete record is dropped when the journal is opened. Any other damage makes the journal unreadable, so that a
// device never continues with an old ledger.

const MAGIC = 0x55544a31;
const HEADER = 12;
const RECORD = 12;
const COMPACT_BYTES = 1 << 20;

const CRCS = Uint32Array.from({ length: 256 }, (_, byte) => {
  for (let bit = 0; bit < 8; bit++) byte = byte & 1 ? (byte >>> 1) ^ 0xedb88320 : byte >>> 1;
  return byte;
});

export function crc32(bytes) {
  let crc = -1;
  for (const byte of bytes) crc = (crc >>> 8) ^ CRCS[(crc ^ byte) & 255];
  return ~crc >>> 0;
}

// Another tab of this browser has the journal open.
export class Busy extends Error {}

// The content of the journal is damaged.
export class Damaged extends Error {}

// This browser does not let the app keep files: a private window, or a browser without such a file system.
export class Unable extends Error {}

// Open the journal `name` in the origin's private file system. Throws Busy, Damaged or Unable.
export async function openJournal(name) {
  const handles = [];
  try {
    const root = await navigator.storage.getDirectory();
    for (const suffix of ["a", "b"]) {
      const file = await root.getFileHandle(`${name}.${suffix}`, { create: true });
      handles.push(await file.createSyncAccessHandle());
    }
    return new Journal(handles);
  } catch (error) {
    for (const handle of handles) handle.close();
    if (error.name === "NoModificationAllowedError") throw new Busy("another tab has the journal open");
    if (error instanceof Damaged) throw error;
    throw new Unable(error.message);
  }
}

export class Journal {
  // `handles`: two open files with the methods of FileSystemSyncAccessHandle. `large`: size in bytes from which the
  // current file is copied, if at most a quarter of it is live.
  constructor(handles, large = COMPACT_BYTES) {
    this.handles = handles;
    this.large = large;
    this.entries = new Map();
    this.broken = false;
    // True if the current file has records that are not live.
    this.dead = false;
    // True if the disk failed, so that copying or emptying has to be tried again.
    this.due = false;
    const files = handles.map(readWhole);
    const generations = files.map(generationOf);
    this.current = generations[1] > generations[0] ? 1 : 0;
    this.generation = generations[this.current];
    if (this.generation) {
      this.end = this.replay(files[this.current]);
      if (this.end < files[this.current].length) this.cut();
      this.erase();
    } else {
      this.begin(0, 1);
    }
  }

  get names() {
    return [...this.entries.keys()];
  }

  // Return the content last written, undefined if there is none.
  read(name) {
    return this.entries.get(name);
  }

  // Write the content durably. If it throws, the old content is kept.
  write(name, content) {
    this.append(name, content);
    this.dead ||= this.entries.has(name);
    this.entries.set(name, content.slice());
    if (this.due || this.isLarge()) this.erase();
  }

  // Delete the content durably, if there is any, and erase it.
  delete(name) {
    if (!this.entries.has(name)) return;
    this.append(name, null);
    this.dead = true;
    this.entries.delete(name);
    this.erase();
  }

  // Remove from the disk what was replaced or deleted. If the disk fails, the next write or opening tries again.
  erase() {
    let copied = true;
    try {
      if (this.dead) this.begin(1 - this.current, this.generation + 1);
    } catch {
      // The old file is still current and complete.
      copied = false;
    }
    this.due = true;
    try {
      this.empty(1 - this.current);
      this.due = !copied;
    } catch {
      // The header of a failed copy may have reached the disk. Then no write may follow in the old file, because the
      // next opening would read the copy.
      if (!copied) this.broken = true;
    }
  }

  close() {
    this.broken = true;
    for (const handle of this.handles) handle.close();
  }

  replay(file) {
    const view = new DataView(file.buffer);
    let at = HEADER;
    while (at < file.length) {
      const start = at + RECORD;
      const known = start <= file.length && view.getUint32(at + 4) === crc32(file.subarray(at, at + 4));
      const end = known ? start + view.getUint32(at) : file.length;
      const body = file.subarray(start, end);
      if (!known || end > file.length || view.getUint32(at + 8) !== crc32(body)) {
        // A power cut may leave a part of the last record: it reaches the end of the file, or zeros follow it.
        if (known ? end >= file.length : body.every((byte) => byte === 0)) return at;
        throw new Damaged(`the journal is damaged at byte ${at}`);
      }
      const length = (body[0] << 8) | body[1];
      const name = new TextDecoder().decode(body.subarray(2, 2 + length));
      this.dead ||= this.entries.has(name) || !body[2 + length];
      if (body[2 + length]) this.entries.set(name, body.slice(3 + length));
      else this.entries.delete(name);
      at = end;
    }
    return at;
  }

  append(name, content) {
    if (this.broken) throw new Error("the journal is closed");
    const bytes = record(name, content);
    const handle = this.handles[this.current];
    try {
      put(handle, bytes, this.end);
      handle.flush();
    } catch (error) {
      this.cut();
      throw error;
    }
    this.end += bytes.length;
  }

  // Remove an incomplete record, so that the next one follows the last complete one.
  cut() {
    try {
      this.handles[this.current].truncate(this.end);
      this.handles[this.current].flush();
    } catch (error) {
      this.broken = true;
      throw error;
    }
  }

  isLarge() {
    const live = [...this.entries].reduce((sum, [name, content]) => sum + name.length + content.length, 0);
    return this.end >= this.large && this.end >= 4 * live;
  }

  // Make the file `index` current, with the live records; its header is written after everything else.
  begin(index, generation) {
    const handle = this.handles[index];
    this.empty(index);
    let end = HEADER;
    for (const [name, content] of this.entries) {
      const bytes = record(name, content);
      put(handle, bytes, end);
      end += bytes.length;
    }
    handle.flush();
    put(handle, header(generation), 0);
    handle.flush();
    this.current = index;
    this.generation = generation;
    this.end = end;
    this.dead = false;
  }

  empty(index) {
    const handle = this.handles[index];
    if (handle.getSize() === 0) return;
    handle.truncate(0);
    handle.flush();
  }
}

function record(name, content) {
  const text = new TextEncoder().encode(name);
  const body = new Uint8Array(3 + text.length + (content ? content.length : 0));
  body[0] = text.length >> 8;
  body[1] = text.length & 255;
  body.set(text, 2);
  if (content) {
    body[2 + text.length] = 1;
    body.set(content, 3 + text.length);
  }
  const bytes = new Uint8Array(RECORD + body.length);
  const view = new DataView(bytes.buffer);
  view.setUint32(0, body.length);
  view.setUint32(4, crc32(bytes.subarray(0, 4)));
  view.setUint32(8, crc32(body));
  bytes.set(body, RECORD);
  return bytes;
}

function header(generation) {
  const bytes = new Uint8Array(HEADER);
  const view = new DataView(bytes.buffer);
  view.setUint32(0, MAGIC);
  view.setUint32(4, generation);
  view.setUint32(8, crc32(bytes.subarray(0, 8)));
  return bytes;
}

// Return the generation in a file's header, 0 if it has not been written. Throws Damaged.
function generationOf(file) {
  if (file.length <= HEADER && !validHeader(file)) return 0;
  if (validHeader(file)) return new DataView(file.buffer).getUint32(4);
  // If a copy was interrupted, the file has records, but zeros in place of its header.
  if (file.subarray(0, HEADER).every((byte) => byte === 0)) return 0;
  throw new Damaged("the header of the journal is damaged");
}

function validHeader(file) {
  if (file.length < HEADER) return false;
  const view = new DataView(file.buffer);
  return view.getUint32(0) === MAGIC && view.getUint32(8) === crc32(file.subarray(0, 8));
}

function put(handle, bytes, at) {
  const written = handle.write(bytes, { at });
  if (written !== bytes.length) throw new Error(`the disk took ${written} of ${bytes.length} bytes`);
}

function readWhole(handle) {
  const bytes = new Uint8Array(handle.getSize());
  handle.read(bytes, { at: 0 });
  return bytes;
}
