// As much of the protobuf wire format as Perfetto's RPC needs.
const encoder = new TextEncoder();
const decoder = new TextDecoder();
const [VARINT, FIXED64, BYTES, FIXED32] = [0, 1, 2, 5];

export const text = (bytes) => decoder.decode(bytes);

export function joined(...parts) {
  const whole = new Uint8Array(parts.reduce((size, part) => size + part.length, 0));
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}

function varint(number) {
  const bytes = [];
  let rest = BigInt(number);
  for (; rest > 127n; rest >>= 7n) bytes.push(Number(rest & 127n) | 128);
  bytes.push(Number(rest));
  return Uint8Array.from(bytes);
}

// One field: a number, a text or the bytes of a message.
export function field(tag, value) {
  if (typeof value === 'number') return joined(varint(tag * 8 + VARINT), varint(value));
  const bytes = typeof value === 'string' ? encoder.encode(value) : value;
  return joined(headOf(tag, bytes.length), bytes);
}

// What stands before so many bytes of a field.
export function headOf(tag, size) {
  return joined(varint(tag * 8 + BYTES), varint(size));
}

// Reads an unsigned varint; `end` is undefined while its bytes are not all there.
export function readVarint(bytes, at) {
  let value = 0n;
  for (let shift = 0n; at < bytes.length; shift += 7n) {
    const byte = bytes[at++];
    value |= BigInt(byte & 127) << shift;
    if (byte < 128) return { value, end: at };
  }
  return { value, end: undefined };
}

// The fields of a message as [tag, BigInt or bytes].
export function* fields(bytes) {
  for (let at = 0; at < bytes.length; ) {
    const head = readVarint(bytes, at);
    const [tag, wire] = [Number(head.value >> 3n), Number(head.value & 7n)];
    at = head.end;
    if (wire === VARINT) {
      const number = readVarint(bytes, at);
      at = number.end;
      yield [tag, number.value];
      continue;
    }
    let size = wire === FIXED64 ? 8 : 4;
    if (wire === BYTES) {
      const length = readVarint(bytes, at);
      [size, at] = [Number(length.value), length.end];
    } else if (wire !== FIXED64 && wire !== FIXED32) throw new Error(`wire type ${wire}`);
    yield [tag, bytes.subarray(at, at + size)];
    at += size;
  }
}

export function signedVarints(packed) {
  const numbers = [];
  for (let at = 0; at < packed.length; ) {
    const number = readVarint(packed, at);
    numbers.push(BigInt.asIntN(64, number.value));
    at = number.end;
  }
  return numbers;
}

export function doubles(packed) {
  const view = new DataView(packed.buffer, packed.byteOffset, packed.byteLength);
  return Array.from({ length: packed.byteLength / 8 }, (_, i) => view.getFloat64(i * 8, true));
}
