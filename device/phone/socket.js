// A WebSocket as a byte stream: received data wait here until the device's client takes them.

const LARGEST_WAITING = 1 << 20;

export class Stream {
  // `arrived()` is called after anything has happened on the connection.
  constructor(url, arrived) {
    this.waiting = [];
    this.size = 0;
    this.ended = false;
    const end = () => {
      this.ended = true;
      arrived();
    };
    try {
      this.socket = new WebSocket(url, "mqtt");
    } catch {
      this.ended = true;
      return;
    }
    this.socket.binaryType = "arraybuffer";
    this.socket.onopen = arrived;
    this.socket.onclose = this.socket.onerror = end;
    this.socket.onmessage = ({ data }) => {
      if (typeof data === "string" || this.size + data.byteLength > LARGEST_WAITING) {
        this.close();
        end();
        return;
      }
      this.waiting.push(new Uint8Array(data));
      this.size += data.byteLength;
      arrived();
    };
  }

  // Return up to `most` bytes; null if there are none now, an empty array at the end of the stream.
  take(most) {
    const first = this.waiting.shift();
    if (!first) return this.ended ? new Uint8Array(0) : null;
    const part = first.subarray(0, most);
    if (part.length < first.length) this.waiting.unshift(first.subarray(most));
    this.size -= part.length;
    return part;
  }

  // Return the number of bytes that the socket took, null while it is not open.
  send(bytes) {
    if (this.ended || this.socket.readyState !== WebSocket.OPEN) return null;
    this.socket.send(bytes);
    return bytes.length;
  }

  close() {
    if (!this.socket) return;
    this.socket.onopen = this.socket.onclose = this.socket.onerror = this.socket.onmessage = null;
    this.socket.close();
    this.ended = true;
  }
}
