// The golden cases of a bundle: decode parity/cases.npz, run the cases, compare the outputs as `compare` of verify.py.
//
// An array is {dtype, shape, data}: the name of NumPy's dtype, a list of sizes, and a typed array in the order of rows.
// "bool" is a Uint8Array, "int64" a BigInt64Array, "float16" a Uint16Array of bits, "string" a list. A case holds Maps
// of arrays: the keys of an object would be sorted if they are numbers.

export const TYPED_ARRAYS = {
  bool: Uint8Array, uint8: Uint8Array, uint16: Uint16Array, uint32: Uint32Array, uint64: BigUint64Array,
  int8: Int8Array, int16: Int16Array, int32: Int32Array, int64: BigInt64Array,
  float16: Uint16Array, float32: Float32Array, float64: Float64Array,
}
const NUMBERS = { u: 'uint', i: 'int', f: 'float' } // the letters of NumPy's dtypes, which a size in bytes follows
const FILL = 1e4 // values that a mask writes in place of a result are larger
const MAX_FILLS = 8 // different values in one output

// ------------------------------------------------------------- .npz and .npy

/** Return the golden cases of an .npz file: a list of {name, inputs, outputs, rounding}. */
export async function readCases(bytes) {
  const arrays = await readArrays(bytes)
  const cases = arrays.get('cases').data.map((name) =>
    ({ name, inputs: new Map(), outputs: new Map(), rounding: new Map() }))
  for (const [key, array] of arrays) {
    const [, index, kind, name] = /^(\d+)\/(inputs|outputs|rounding)\/(.*)$/s.exec(key) ?? []
    if (kind) cases[index][kind].set(name, kind === 'rounding' ? roundingSizes(array) : array)
  }
  return cases
}

/** Return the arrays of an .npz file, a zip archive without a comment, as a Map. */
async function readArrays(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  const [short, long] = [(at) => view.getUint16(at, true), (at) => view.getUint32(at, true)]
  const end = bytes.length - 22 // the record that ends the archive
  const arrays = new Map()
  for (let left = short(end + 10), at = long(end + 16); left > 0; left--) {
    const name = new TextDecoder().decode(bytes.subarray(at + 46, at + 46 + short(at + 28)))
    const header = long(at + 42)
    const start = header + 30 + short(header + 26) + short(header + 28)
    const content = bytes.subarray(start, start + long(at + 20))
    const isDeflated = short(at + 10) === 8
    arrays.set(name.replace(/\.npy$/, ''), parseArray(isDeflated ? await inflated(content) : content))
    at += 46 + short(at + 28) + short(at + 30) + short(at + 32)
  }
  return arrays
}

/** Return the hexadecimal SHA-256 of bytes. */
export async function sha256(bytes) {
  const digest = new Uint8Array(await crypto.subtle.digest('SHA-256', bytes))
  return Array.from(digest, (byte) => byte.toString(16).padStart(2, '0')).join('')
}

async function inflated(content) {
  const stream = new Blob([content]).stream().pipeThrough(new DecompressionStream('deflate-raw'))
  return new Uint8Array(await new Response(stream).arrayBuffer())
}

/** Return the array of an .npy file. */
function parseArray(npy) {
  const view = new DataView(npy.buffer, npy.byteOffset, npy.byteLength)
  const [start, length] = npy[6] === 1 ? [10, view.getUint16(8, true)] : [12, view.getUint32(8, true)]
  const header = new TextDecoder().decode(npy.subarray(start, start + length))
  const [, kind, order, sizes] =
    /'descr': '[<|](.*?)', 'fortran_order': (True|False), 'shape': \((.*?)\)/.exec(header)
  const shape = sizes.split(',').filter((size) => size.trim()).map(Number)
  const content = npy.slice(start + length) // a copy, since a typed array must begin at a multiple of its item's size
  const [letter, size] = [kind[0], Number(kind.slice(1))]
  const dtype = { U: 'string', b: 'bool' }[letter] ?? NUMBERS[letter] + 8 * size
  const data = letter === 'U' ? stringsOf(content, size) : new TYPED_ARRAYS[dtype](content.buffer)
  return { dtype, shape, data: order === 'True' ? inRowOrder(data, shape) : data }
}

/** Return the strings of a NumPy array: `width` code points of 32 bits each, padded with zeros. */
function stringsOf(content, width) {
  const points = new Uint32Array(content.buffer)
  return Array.from({ length: points.length / width }, (_, index) => {
    const item = points.subarray(index * width, (index + 1) * width)
    return Array.from(item, (point) => String.fromCodePoint(point)).join('').replace(/\0+$/, '')
  })
}

/** Return the elements of an array in column order in row order. */
function inRowOrder(data, shape) {
  const ordered = data.slice()
  const position = shape.map(() => 0)
  const strides = shape.map((_, axis) => shape.slice(0, axis).reduce((product, size) => product * size, 1))
  for (let index = 0; index < data.length; index++) {
    ordered[index] = data[position.reduce((sum, at, axis) => sum + at * strides[axis], 0)]
    for (let axis = shape.length - 1; axis >= 0 && ++position[axis] === shape[axis]; axis--) position[axis] = 0
  }
  return ordered
}

/** Return the rounding limits of an output, which are stored as twice their logarithm to base 2 (-32768: zero). */
function roundingSizes({ dtype, shape, data }) {
  if (dtype === 'bool') return { dtype, shape, data }
  // powers of 2 are exact, and the root of 2 is multiplied in last: the same numbers as NumPy's
  const size = (step) => step % 2 === 0 ? 2 ** (step / 2)
    : step > 0 ? Math.SQRT2 * 2 ** ((step - 1) / 2) : Math.SQRT1_2 * 2 ** ((step + 1) / 2)
  return { dtype: 'float64', shape, data: Float64Array.from(data, size) }
}

// ------------------------------------------------------------------- running

/** Return an array as a tensor of onnxruntime-web. */
export function toTensor(ort, { dtype, shape, data }) {
  return new ort.Tensor(dtype, data, shape)
}

/** Return a tensor as an array. */
export function fromTensor({ type, dims, data }) {
  // If JavaScript has `Float16Array`, onnxruntime-web returns one in place of bits.
  const hasNumbers = type === 'float16' && !(data instanceof Uint16Array)
  const bits = hasNumbers ? new Uint16Array(data.buffer, data.byteOffset, data.length) : data
  return { dtype: type, shape: [...dims], data: bits }
}

/** Return onnxruntime-web, made of its module and its WebAssembly, and a session that runs a model. */
export async function openSession(module, binary, model) {
  const ort = await import(URL.createObjectURL(new Blob([module], { type: 'text/javascript' })))
  ort.env.wasm.numThreads = 1 // threads need SharedArrayBuffer, which a page from a file does not have
  ort.env.wasm.wasmBinary = binary
  ort.env.logLevel = 'error'
  return { ort, session: await ort.InferenceSession.create(model, { executionProviders: ['wasm'] }) }
}

/** Run cases in a session and return the rows of `compare`; `onCase` is called with the number of cases so far, and awaited. */
export async function replay(ort, session, cases, tolerance, onCase) {
  const rows = []
  for (const [index, each] of cases.entries()) {
    const feeds = Object.fromEntries([...each.inputs].map(([name, array]) => [name, toTensor(ort, array)]))
    const results = await session.run(feeds).catch((error) => {
      throw new Error(`onnxruntime-web cannot run case ${each.name}: ${error.message ?? error}`)
    })
    const outputs = new Map(session.outputNames.map((name) => [name, fromTensor(results[name])]))
    rows.push(...compare(each, outputs, tolerance))
    await onCase(index + 1)
  }
  return rows
}

// ----------------------------------------------------------------- comparing

/** Compare the outputs of a case: a row {case, name, of_limit, problem} for each output, `problem` null for a match. */
export function compare({ name: caseName, outputs, rounding }, actual, tolerance) {
  return [...new Set([...outputs.keys(), ...actual.keys()])].map((name) => {
    const found = compareOutput(outputs.get(name), actual.get(name), rounding.get(name), tolerance)
    return { case: caseName, name, of_limit: Infinity, ...found }
  })
}

function compareOutput(expected, actual, rounding, tolerance) {
  if (!actual) return { problem: 'is missing' }
  if (!expected) return { problem: 'was not expected' }
  const [wanted, shape] = [expected, actual].map((array) => shapeText(array.shape))
  if (shape !== wanted) return { problem: `has shape ${shape}, expected ${wanted}` }
  if (actual.dtype !== expected.dtype) return { problem: `has dtype ${actual.dtype}, expected ${expected.dtype}` }
  return expected.dtype.startsWith('float')
    ? compareFloats(expected, actual, rounding, tolerance)
    : compareExactly(expected.data, actual.data, rounding)
}

/** Return a shape as Python writes it. */
function shapeText(shape) {
  return shape.length === 1 ? `(${shape[0]},)` : `(${shape.join(', ')})`
}

function compareExactly(expected, actual, rounding) {
  const ties = rounding?.dtype === 'bool' ? rounding.data : [] // elements that rounding decides
  const wrong = expected.reduce((count, value, index) => count + (value !== actual[index] && !ties[index]), 0)
  return wrong
    ? { of_limit: 1, problem: `differs in ${wrong} of ${expected.length} places` }
    : { of_limit: 0, problem: null }
}

function compareFloats(expectedArray, actualArray, rounding, tolerance) {
  const [expected, actual] = [numbers(expectedArray), numbers(actualArray)]
  const scale = scaleOf(expected, expectedArray.shape)
  let worst = 0
  for (let index = 0; index < expected.length; index++) {
    let difference = 0
    if (Number.isFinite(expected[index]) && Number.isFinite(actual[index])) {
      difference = Math.abs(expected[index] - actual[index])
    } else if (!Object.is(expected[index], actual[index])) {
      return { problem: 'has NaN or infinity in other places than expected' }
    }
    const limit = Math.max(tolerance.absolute, tolerance.relative * scale[index], rounding?.data[index] ?? 0)
    if (difference > 0) worst = Math.max(worst, difference / limit) // infinite for a limit of 0
  }
  return { of_limit: worst, problem: worst <= 1 ? null : 'is outside the tolerance' }
}

/** Return the scale of each number: its magnitude, or the largest of its row or of its channel, whichever is less. */
function scaleOf(expected, shape) {
  const scale = expected.map((value) => Number.isFinite(value) ? Math.abs(value) : 0)
  const sizes = withoutFills(scale)
  const columns = shape.length > 1 ? shape[shape.length - 1] : 1
  const channels = new Float64Array(columns)
  sizes.forEach((size, index) => { channels[index % columns] = Math.max(channels[index % columns], size) })
  for (let start = 0; start < sizes.length; start += columns) {
    let row = columns > 1 ? 0 : Infinity // a row of one number would be its own scale
    for (let column = 0; column < columns; column++) row = Math.max(row, sizes[start + column])
    for (let column = 0; column < columns; column++) {
      scale[start + column] = Math.max(scale[start + column], Math.min(row, channels[column]))
    }
  }
  return scale
}

/** Return magnitudes with 0 for fills of a mask: beyond 1e4, and repeated or far beyond all other numbers. */
function withoutFills(sizes) {
  let left = sizes
  for (let turn = 0; turn < MAX_FILLS; turn++) {
    const top = left.reduce((most, size) => Math.max(most, size), 0)
    if (top < FILL) break
    const isTop = (size) => size >= top * (1 - 1e-4)
    const others = left.map((size) => isTop(size) ? 0 : size)
    const repeats = left.reduce((count, size) => count + isTop(size), 0)
    if (repeats < 2 && others.some((size) => size > top / 1000)) break
    left = others
  }
  return left
}

/** Return the numbers of an array as a Float64Array; float16 is decoded from its bits. */
export function numbers({ dtype, data }) {
  return Float64Array.from(data, dtype === 'float16' ? fromHalf : Number)
}

function fromHalf(bits) {
  const [sign, exponent, fraction] = [bits >> 15 ? -1 : 1, (bits >> 10) & 31, bits & 1023]
  if (exponent === 31) return fraction ? NaN : sign * Infinity
  return sign * (exponent ? (1024 + fraction) * 2 ** (exponent - 25) : fraction * 2 ** -24)
}
