/**
 * Replay a bundle's golden cases in JavaScript, and judge the outputs as `verify.py` does.
 *
 * This one file stands alone. Node runs it, `node verify.mjs BUNDLE [--json]`, with the onnxruntime-node of the folder
 * it is run in; programs import what it exports; and a web page can hold its text. So it imports nothing until it knows
 * that it is Node's main script, and what it exports works on bytes and on arrays:
 *
 *     {dtype, shape, data}      dtype: NumPy's name, as "float32"; shape: list of sizes; data: typed array, row by row
 *
 * "bool" lies in a Uint8Array, "int64" in a BigInt64Array, "float16" as bits in a Uint16Array, text ("<U8") in a list.
 * The inputs, outputs and rounding of a case are Maps by name: an object would put names such as "10" and "2" in order.
 */

const SCHEMA_VERSION = 3
const MANIFEST = 'manifest.json'
const MODEL = 'model.onnx'
const CASES = 'parity/cases.npz'
const NEEDED = 'model inputs outputs opset layers versions lowest_onnxruntime parity sha256'.split(' ')

/** A bundle, or what is given for one, that is not what it must be; also a session that cannot run a case. */
export class BundleError extends Error {}

// ---------------------------------------------------------------- manifest

/**
 * Return the manifest after checking its version, its hash of itself and the entries that readers need.
 * `text` is the whole file as it was written: only those bytes have that hash.
 */
export async function checkManifest(text) {
  if (text.length > MOST_JSON || (text.match(/[,[{]/g)?.length ?? 0) > MOST_VALUES) throw tooLarge(MANIFEST)
  let manifest
  try {
    manifest = JSON.parse(text)
  } catch {
    throw notAManifest('it is no JSON')
  }
  if (!isRecord(manifest) || !('schema_version' in manifest)) throw notAManifest('it has no `schema_version`')
  if (isDeep(manifest)) throw notAManifest('it is nested too deeply')
  const version = manifest.schema_version
  if (version !== SCHEMA_VERSION) {
    const found = `${MANIFEST} has schema version ${JSON.stringify(version).slice(0, 40)}`
    const remedy = version === 1 || version === 2 ? ' Export the model again.' : ''
    throw new BundleError(`${found}; this reader knows version ${SCHEMA_VERSION} only.${remedy}`)
  }
  if (!(await isAsWritten(text))) {
    throw new BundleError(
      `${MANIFEST} is not the file that was exported: it does not match its own \`manifest_sha256\`.`,
    )
  }
  const hashes = manifest.sha256
  const missing = NEEDED.filter((name) => !Object.hasOwn(manifest, name))
  if (isRecord(hashes)) missing.push(...[MODEL, CASES].filter((name) => !Object.hasOwn(hashes, name)))
  if (missing.length) throw new BundleError(`${MANIFEST} is incomplete: it says nothing of ${missing.join(', ')}.`)
  const problem = problemOf(manifest, ENTRIES, '') ?? repeated(manifest)
  if (problem) throw notAManifest(problem)
  return manifest
}

function notAManifest(problem) {
  return new BundleError(`${MANIFEST} is not a bundle's manifest: ${problem}. Export the model again.`)
}

/** Tell whether the last entry is the hash of the others, as Python wrote them: JavaScript writes numbers otherwise. */
async function isAsWritten(text) {
  const last = /,\n {2}"manifest_sha256": "([0-9a-f]{64})"\n\}\n$/.exec(text)
  if (!last || /[^\x00-\x7f]/.test(text)) return false
  return (await sha256(new TextEncoder().encode(text.slice(0, last.index) + '\n}\n'))) === last[1]
}

// What is read of a manifest; the same in verify.py.
const MOST_JSON = 16 * 2 ** 20
const MOST_VALUES = 2 ** 19
const MOST_DEPTH = 32

function tooLarge(file) {
  return new BundleError(`${file} is more than ${MOST_JSON >> 20} MiB or ${MOST_VALUES} values, which is not read.`)
}

function isDeep(content) {
  let level = [content]
  for (let depth = 0; depth < MOST_DEPTH; depth++) {
    level = level.flatMap((each) => (typeof each === 'object' && each !== null ? Object.values(each) : []))
  }
  return level.length > 0
}

// A kind of value is [what it must be, whether one is]: those of verify.py, by the same names.
const LETTERS = 1000
const DTYPES = [
  'bool', 'int8', 'int16', 'int32', 'int64', 'uint8', 'uint16', 'uint32', 'uint64', 'float16', 'float32', 'float64', 'string',
]
const isText = (value) => typeof value === 'string' && !/\p{Surrogate}/u.test(value)
const isName = (value) => isText(value) && value.length <= 2 * LETTERS && isWhole([...value].length, 1, LETTERS)
const isWhole = (value, least, most = Infinity) => Number.isSafeInteger(value) && value >= least && value <= most
const isNumber = (value) => typeof value === 'number' && Math.abs(value) <= 1e300

const TEXT = ['text', isText]
const NAME = [`a name of 1 to ${LETTERS} letters`, isName]
const COUNT = ['a whole number of 0 or more', (value) => isWhole(value, 0)]
const STEP = ['a whole number from 1 to 1048576', (value) => isWhole(value, 1, 2 ** 20)]
const AXIS = ['a size of 0 or more or the name of an axis', (value) => isWhole(value, 0) || isName(value)]
const NUMBER = ['a finite number', isNumber]
const LIMIT = ['a number of 0 or more', (value) => isNumber(value) && value >= 0]
const DTYPE = [`one of ${DTYPES.join(', ')}`, (value) => DTYPES.includes(value)]
const HASH = ['a SHA-256 of 64 digits', (value) => isText(value) && /^[0-9a-f]{64}$/.test(value)]
const VERSION = ['a version such as 1.18', (value) => isText(value) && /^[0-9]{1,4}\.[0-9]{1,4}$/.test(value)]

// A schema is one of these; or a list; or schemas by key, of which one with a `?` may be missing, and others may be
// there; or one schema under `*`, for values by any names.
const listOf = (each, least = 0, most = Infinity) => ({ each, least, most })
const SPECS = listOf({ name: NAME, dtype: DTYPE, shape: listOf(AXIS, 0, 32) }, 1)
const LAYER = {
  name: TEXT, class: TEXT, lowering: TEXT, precision: TEXT, 'form?': TEXT,
  'milliseconds?': listOf({ '*': NUMBER }),
}
const ENTRIES = {
  model: NAME, inputs: SPECS, outputs: SPECS,
  'counts?': { '*': NAME }, 'weights_of?': { '*': TEXT }, 'multiples?': { '*': STEP }, 'static?': { '*': TEXT },
  'values?': { '*': TEXT },
  'calibration?': { 'rows?': COUNT, 'int8_layers?': listOf(TEXT), 'float32_layers?': listOf(TEXT) },
  opset: COUNT, 'precision?': TEXT, layers: listOf(LAYER),
  'backend?': TEXT, versions: { '*': TEXT }, lowest_onnxruntime: VERSION,
  parity: { tolerance: { relative: LIMIT, absolute: LIMIT } }, sha256: { '*': HASH },
}

/** Return where a value of JSON is not what a schema says, and what must be there; `null` where all is well. */
function problemOf(value, schema, place) {
  if (Array.isArray(schema)) return schema[1](value) ? null : `\`${place}\` must be ${schema[0]}`
  if (schema.each) {
    if (!Array.isArray(value)) return `\`${place}\` must be a list`
    if (value.length < schema.least) return `\`${place}\` must not be empty`
    if (value.length > schema.most) return `\`${place}\` must have ${schema.most} entries at most`
    return firstProblem(value.map((each, number) => [each, schema.each, `${place}[${number}]`]))
  }
  if (!isRecord(value)) return place ? `\`${place}\` must be an object` : 'it must be an object'
  if ('*' in schema) {
    if (!Object.keys(value).every(isText)) return `\`${place}\` has a name that is no text`
    return firstProblem(Object.entries(value).map(([name, each]) => [each, schema['*'], `${place}.${cut(name)}`]))
  }
  const within = place && `${place}.`
  const lost = Object.keys(schema).find((key) => !key.endsWith('?') && !Object.hasOwn(value, key))
  if (lost) return `\`${within}${lost}\` is missing`
  const known = Object.entries(schema).map(([key, inner]) => [key.replace(/\?$/, ''), inner])
  const there = known.filter(([key]) => Object.hasOwn(value, key))
  return firstProblem(there.map(([key, inner]) => [value[key], inner, within + key]))
}

function firstProblem(values) {
  for (const each of values) {
    const problem = problemOf(...each)
    if (problem) return problem
  }
  return null
}

function cut(name) {
  return [...name.slice(0, 160)].slice(0, 80).join('')
}

/** Return what is said of a name that two inputs or outputs have: a graph cannot give two tensors one name. */
function repeated(manifest) {
  const seen = new Set()
  for (const kind of ['inputs', 'outputs']) {
    for (const { name } of manifest[kind]) {
      if (seen.has(name)) return `\`${kind}\` has a name twice`
      seen.add(name)
    }
  }
  return null
}

function isRecord(value) {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

/** Return the hexadecimal SHA-256 digest of bytes. */
export async function sha256(bytes) {
  // A page that came by plain http has no `crypto.subtle`.
  const digest = globalThis.crypto?.subtle ? await crypto.subtle.digest('SHA-256', bytes) : sha256Alone(bytes)
  return Array.from(new Uint8Array(digest), (byte) => byte.toString(16).padStart(2, '0')).join('')
}

/** FIPS 180-4, 6.2: slower than `crypto.subtle` by far. */
function sha256Alone(bytes) {
  const primes = []
  for (let n = 2; primes.length < 64; n++) if (primes.every((prime) => n % prime)) primes.push(n)
  const fraction = (x) => ((x - Math.floor(x)) * 2 ** 32) | 0
  const constants = primes.map((prime) => fraction(Math.cbrt(prime)))
  const state = Int32Array.from(primes.slice(0, 8), (prime) => fraction(Math.sqrt(prime)))
  const padded = new Uint8Array(Math.ceil((bytes.length + 9) / 64) * 64)
  padded.set(bytes)
  padded[bytes.length] = 0x80
  const view = new DataView(padded.buffer)
  view.setBigUint64(padded.length - 8, BigInt(bytes.length) * 8n)
  const turn = (x, by) => (x >>> by) | (x << (32 - by))
  const words = new Int32Array(64)
  for (let start = 0; start < padded.length; start += 64) {
    for (let t = 0; t < 16; t++) words[t] = view.getInt32(start + 4 * t)
    for (let t = 16; t < 64; t++) {
      const [x, y] = [words[t - 15], words[t - 2]]
      const small = (turn(x, 7) ^ turn(x, 18) ^ (x >>> 3)) + (turn(y, 17) ^ turn(y, 19) ^ (y >>> 10))
      words[t] = words[t - 16] + words[t - 7] + small
    }
    let [a, b, c, d, e, f, g, h] = state
    for (let t = 0; t < 64; t++) {
      const first = h + (turn(e, 6) ^ turn(e, 11) ^ turn(e, 25)) + ((e & f) ^ (~e & g)) + constants[t] + words[t]
      const second = (turn(a, 2) ^ turn(a, 13) ^ turn(a, 22)) + ((a & b) ^ (a & c) ^ (b & c))
      ;[h, g, f, e, d, c, b, a] = [g, f, e, (d + first) | 0, c, b, a, (first + second) | 0]
    }
    ;[a, b, c, d, e, f, g, h].forEach((word, index) => (state[index] += word))
  }
  state.forEach((word, index) => view.setInt32(4 * index, word))
  return padded.slice(0, 32).buffer
}

// ------------------------------------------------------------ .npz and .npy

// What an archive may unpack to in any case, and how many times its own size; the same as in verify.py.
const ROOM = 64 * 2 ** 20
const GROWTH = 100
const MOST_ARRAYS = 2 ** 15
const MOST_TEXTS = 2 ** 20 // in one array

const KINDS = {
  b1: ['bool', Uint8Array],
  u1: ['uint8', Uint8Array], u2: ['uint16', Uint16Array], u4: ['uint32', Uint32Array], u8: ['uint64', BigUint64Array],
  i1: ['int8', Int8Array], i2: ['int16', Int16Array], i4: ['int32', Int32Array], i8: ['int64', BigInt64Array],
  f2: ['float16', Uint16Array], f4: ['float32', Float32Array], f8: ['float64', Float64Array],
}

/**
 * Return the arrays of an .npz file, a Uint8Array, as a Map by name.
 * What the archive says that it unpacks to is checked before any of it is unpacked, and no more than that is.
 */
export async function readArrays(bytes) {
  try {
    const members = zipMembers(bytes)
    const unpacked = members.reduce((sum, member) => sum + member.size, 0)
    if (unpacked > Math.max(ROOM, GROWTH * bytes.length)) {
      throw new BundleError(
        `its ${bytes.length} bytes would unpack to ${unpacked}, more than ${GROWTH} times as many; if that is meant, ` +
          'save them unpacked, with numpy.savez',
      )
    }
    const arrays = new Map()
    for (const member of members) {
      arrays.set(member.name.replace(/\.npy$/, ''), parseArray(member.name, await unpack(bytes, member)))
    }
    return arrays
  } catch (error) {
    if (!(error instanceof BundleError) && !(error instanceof RangeError)) throw error
    const reason = error instanceof RangeError ? 'a size or a place in it is beyond its end' : error.message
    throw new BundleError(`This is not an .npz file of plain arrays: ${reason}.`)
  }
}

/** Read a zip archive's own list of what is in it. */
function zipMembers(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  if (startsWith(bytes, NPY_MAGIC)) throw new BundleError('it holds a single array, without a name')
  let end = bytes.length - 22
  const reaches = () => end + 22 + view.getUint16(end + 20, true)
  const isEnd = () => view.getUint32(end, true) === 0x06054b50 && reaches() === bytes.length
  while (end >= 0 && !isEnd()) end = end > bytes.length - 22 - 0xffff ? end - 1 : -1 // a comment may follow it
  if (end < 0) throw new BundleError('it is no zip archive')
  let [count, at] = [view.getUint16(end + 10, true), view.getUint32(end + 16, true)]
  if (end >= 20 && view.getUint32(end - 20, true) === 0x07064b50) {
    const wide = long(view, end - 12) // zip64: an archive beyond 4 GiB, or of more than 65535 arrays
    if (view.getUint32(wide, true) !== 0x06064b50) throw new BundleError('its list of arrays is not where it should be')
    ;[count, at] = [long(view, wide + 32), long(view, wide + 48)]
  }
  if (count > MOST_ARRAYS) throw new BundleError(`it holds ${count} arrays, and no more than ${MOST_ARRAYS} are read`)
  const members = []
  for (; count > 0; count--) {
    if (view.getUint32(at, true) !== 0x02014b50) throw new BundleError('its list of arrays is cut short')
    const [named, extra, comment] = [28, 30, 32].map((offset) => view.getUint16(at + offset, true))
    const name = new TextDecoder().decode(bytes.subarray(at + 46, at + 46 + named))
    if (view.getUint16(at + 8, true) & 1) throw new BundleError(`\`${name}\` is encrypted`)
    const sizes = wideSizes(view, at, at + 46 + named, extra)
    members.push({ name, method: view.getUint16(at + 10, true), crc: view.getUint32(at + 16, true), ...sizes })
    at += 46 + named + extra + comment
  }
  return members
}

/** Return a member's sizes and start, which are in an extra field where they do not fit in 32 bits. */
function wideSizes(view, at, from, length) {
  const [size, packed, start] = [24, 20, 42].map((offset) => view.getUint32(at + offset, true))
  const found = { size, packed, start }
  for (let field = from; field + 4 <= from + length; field += 4 + view.getUint16(field + 2, true)) {
    if (view.getUint16(field, true) !== 1) continue
    let next = field + 4
    for (const key of Object.keys(found)) {
      if (found[key] !== 0xffffffff) continue
      found[key] = long(view, next)
      next += 8
    }
  }
  return found
}

function long(view, at) {
  return Number(view.getBigUint64(at, true))
}

/** Unpack one member, of which not a byte more is taken than the archive says. */
async function unpack(bytes, { name, method, crc, size, packed, start }) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  if (view.getUint32(start, true) !== 0x04034b50) throw new BundleError(`\`${name}\` is not where the archive says`)
  const from = start + 30 + view.getUint16(start + 26, true) + view.getUint16(start + 28, true)
  if (method !== 0 && method !== 8) throw new BundleError(`\`${name}\` is packed in another way than NumPy's`)
  const held = bytes.subarray(from, from + packed)
  const content = method === 8 ? await inflate(held, size, name) : held
  if (content?.length !== size) throw new BundleError(`\`${name}\` is not as long as the archive says`)
  if (crc32(content) !== crc) throw new BundleError(`\`${name}\` has another checksum than the archive says`)
  return content
}

async function inflate(held, size, name) {
  const content = new Uint8Array(size)
  let filled = 0
  try {
    const stream = new Blob([held]).stream().pipeThrough(new DecompressionStream('deflate-raw'))
    for (const reader = stream.getReader(); ; ) {
      const { done, value } = await reader.read()
      if (done) return content.subarray(0, filled)
      if (filled + value.length > size) {
        await reader.cancel()
        return null
      }
      content.set(value, filled)
      filled += value.length
    }
  } catch (error) {
    const needed = 'that needs Node 20.12, or a browser of 2023'
    throw new BundleError(`\`${name}\` cannot be unpacked (${firstLine(error)}); ${needed}`)
  }
}

function crc32(bytes) {
  let crc = -1
  for (let index = 0; index < bytes.length; index++) crc = (crc >>> 8) ^ CRC_TABLE[(crc ^ bytes[index]) & 0xff]
  return ~crc >>> 0
}

const CRC_TABLE = Int32Array.from({ length: 256 }, (_, byte) => {
  let crc = byte
  for (let bit = 0; bit < 8; bit++) crc = crc & 1 ? (crc >>> 1) ^ 0xedb88320 : crc >>> 1
  return crc
})

const NPY_MAGIC = [0x93, ...Array.from('NUMPY', (letter) => letter.charCodeAt(0))]

function startsWith(bytes, start) {
  return start.every((byte, index) => bytes[index] === byte)
}

/** Read an .npy file whose header agrees with its length. */
function parseArray(name, npy) {
  if (!startsWith(npy, NPY_MAGIC)) throw new BundleError(`\`${name}\` is no array`)
  const version = npy[6]
  if (![1, 2, 3].includes(version)) throw new BundleError(`\`${name}\` is in version ${version} of NumPy's format`)
  const view = new DataView(npy.buffer, npy.byteOffset, npy.byteLength)
  const [from, length] = version === 1 ? [10, view.getUint16(8, true)] : [12, view.getUint32(8, true)]
  const header = new TextDecoder(version === 3 ? 'utf-8' : 'latin1').decode(npy.subarray(from, from + length))
  const found = /^\{'descr': '([^']*)', 'fortran_order': (True|False), 'shape': \(([\d, ]*)\),? *\}\s*$/.exec(header)
  const [kind, width] = [/^[<|]([a-z]\d)$/.exec(found?.[1])?.[1], Number(/^<U(\d+)$/.exec(found?.[1])?.[1] ?? 0)]
  if (!found) throw new BundleError(`\`${name}\` is no array of numbers or text`)
  if (found[1] === '|O') throw new BundleError(`\`${name}\` holds objects, and to read those can run code`)
  if (!width && !Object.hasOwn(KINDS, kind ?? '')) {
    throw new BundleError(`\`${name}\` has dtype ${found[1]}, which is not read`)
  }
  const shape = found[3].split(',').filter((size) => size.trim()).map(Number)
  const held = npy.slice(from + length) // begins where typed arrays may
  const told = shape.reduce((product, size) => product * size, width ? 4 * width : Number(kind[1]))
  if (told !== held.length) {
    const belong = `${told} belong to shape ${tuple(shape)} and dtype ${found[1]}`
    throw new BundleError(`\`${name}\` holds ${held.length} bytes, and ${belong}`)
  }
  const texted = width && held.length / 4 / width
  if (texted > MOST_TEXTS) throw new BundleError(`\`${name}\` holds more than ${MOST_TEXTS} texts`)
  const [dtype, data] = width ? [`<U${width}`, texts(held, width)] : [KINDS[kind][0], new KINDS[kind][1](held.buffer)]
  return { dtype, shape, data: found[2] === 'True' ? rowByRow(data, shape) : data }
}

/** Return the texts of a NumPy array: each of `width` code points of 32 bits, filled up with zeros. */
function texts(held, width) {
  const points = new Uint32Array(held.buffer)
  return Array.from({ length: points.length / width }, (_, index) => {
    let [text, end] = ['', (index + 1) * width]
    while (end > index * width && points[end - 1] === 0) end--
    for (let at = index * width; at < end; at++) text += String.fromCodePoint(points[at])
    return text
  })
}

/** Return the elements of an array that lies column by column in the order of its rows. */
function rowByRow(data, shape) {
  const ordered = data.slice()
  const place = shape.map(() => 0)
  const strides = shape.map((_, axis) => shape.slice(0, axis).reduce((product, size) => product * size, 1))
  for (let index = 0; index < data.length; index++) {
    ordered[index] = data[place.reduce((sum, at, axis) => sum + at * strides[axis], 0)]
    for (let axis = shape.length - 1; axis >= 0 && ++place[axis] === shape[axis]; axis--) place[axis] = 0
  }
  return ordered
}

/**
 * Return the golden cases of a bundle's parity/cases.npz, a Uint8Array: {name, inputs, outputs, rounding} each.
 * With a manifest they must fit what it says of inputs and outputs. `rounding` gives by output how far off each number
 * may be because of rounding alone; for integers and booleans, 1 where rounding decides which it is: any will do then.
 */
export async function readCases(bytes, manifest) {
  const arrays = await readArrays(bytes)
  const names = arrays.get('cases')
  if (names?.shape.length !== 1) throw notCases('`cases` must be a list of names')
  if (!names.data.length) throw new BundleError(`${CASES} holds no golden case: there is nothing to compare.`)
  if (!(Number(names.dtype.slice(2)) <= LETTERS) || names.data.length >= arrays.size) {
    const many = 'and no more of them than other arrays'
    throw notCases(`\`cases\` must be names of up to ${LETTERS} letters, ${many}`)
  }
  if (!names.data.every(isText)) throw notCases('`cases` holds a name that is no text')
  const parts = new Map()
  for (const [key, array] of arrays) {
    const [, part, name] = /^([^/]*\/[^/]*)\/(.*)$/s.exec(key) ?? [null, '', '']
    if (!parts.has(part)) parts.set(part, new Map())
    const isStrings = part && array.dtype.startsWith('<U')
    if (isStrings && !array.data.every(isText)) throw notCases(`\`${key}\` holds a string that is no text`)
    parts.get(part).set(name, isStrings ? { ...array, dtype: 'string' } : array)
  }
  return names.data.map((name, index) => {
    const part = (kind) => parts.get(`${index}/${kind}`) ?? new Map()
    const [inputs, outputs, steps] = ['inputs', 'outputs', 'rounding'].map(part)
    for (const [output, { shape, dtype }] of steps) {
      if (!outputs.has(output) || tuple(outputs.get(output).shape) !== tuple(shape)) {
        throw notCases('its rounding does not fit the outputs')
      }
      if (!['int16', 'bool'].includes(dtype)) throw notCases('its rounding must be of dtype int16 or bool')
    }
    if (manifest) {
      checkArrays(name, 'input', inputs, manifest.inputs)
      checkArrays(name, 'output', outputs, manifest.outputs)
    }
    const rounding = new Map([...steps].map(([output, array]) => [output, roundingSizes(array)]))
    return { name, inputs, outputs, rounding }
  })
}

/** Check that arrays are what a manifest says of inputs or outputs, but for sizes that it leaves open. */
function checkArrays(name, kind, arrays, specs) {
  const said = `${CASES} has a case \`${name}\` with`
  const wanted = new Map(specs.map((spec) => [spec.name, spec]))
  if (arrays.size !== wanted.size || ![...arrays.keys()].every((each) => wanted.has(each))) {
    const [came, told] = [arrays, wanted].map((each) => [...each.keys()].slice(0, 9).join(', '))
    throw new BundleError(`${said} ${kind}s ${came}, and the manifest says ${told}.`)
  }
  for (const [each, { dtype, shape }] of arrays) {
    const spec = wanted.get(each)
    const sizesFit = spec.shape.every((size, axis) => typeof size === 'string' || size === shape[axis])
    if (dtype === spec.dtype && shape.length === spec.shape.length && sizesFit) continue
    const told = `the manifest says ${spec.dtype} of ${tuple(spec.shape)}`
    throw new BundleError(`${said} ${kind} \`${each}\` in ${dtype} of shape ${tuple(shape)}; ${told}.`)
  }
}

function notCases(problem) {
  return new BundleError(`${CASES} is not a file of golden cases: ${problem}.`)
}

/** Return what steps of a factor of the root of 2 stand for. */
function roundingSizes(steps) {
  if (steps.dtype === 'bool') return steps
  const data = Float64Array.from(steps.data, (value) => {
    const step = Number(value)
    if (step % 2 === 0) return 2 ** (step / 2) // and so 0 for -32768, which stands for none
    return step > 0 ? Math.SQRT2 * 2 ** ((step - 1) / 2) : Math.SQRT1_2 * 2 ** ((step + 1) / 2) // powers are exact
  })
  return { dtype: 'float64', shape: steps.shape, data }
}

// ---------------------------------------------------------------- comparing

const FILL = 1e4 // what masks write in place of a result is larger
const MOST_FILLS = 8 // different ones in one output

/**
 * Compare one case's outputs as `compare` of verify.py does, which says what agrees; a row for each output.
 * `actual` is a Map or an object of arrays, `tolerance` that of the manifest.
 */
export function compare(oneCase, actual, tolerance, lenience = 1) {
  const [expected, rounding, given] = [oneCase.outputs, oneCase.rounding ?? new Map(), actual].map(asMap)
  return [...new Set([...expected.keys(), ...given.keys()])].map((name) => {
    const [want, have] = [expected.get(name), given.get(name)]
    const row = ({ found = [Infinity, Infinity, Infinity], problem = null, ties = 0 }) => ({
      name, case: oneCase.name, shape: [...(want ?? have).shape], dtype: (want ?? have).dtype,
      max_abs: found[0], max_rel: found[1], of_limit: found[2],
      ties, tolerance: { ...tolerance }, passed: problem === null, problem,
    })
    if (!have) return row({ problem: 'is missing' })
    if (!want) return row({ problem: 'was not expected' })
    if (tuple(want.shape) !== tuple(have.shape)) {
      return row({ problem: `has shape ${tuple(have.shape)}, expected ${tuple(want.shape)}` })
    }
    if (want.dtype !== have.dtype) return row({ problem: `has dtype ${have.dtype}, expected ${want.dtype}` })
    const judge = want.dtype.startsWith('float') ? compareFloats : compareOthers
    return row(judge(want, have, rounding.get(name), tolerance, lenience))
  })
}

function asMap(arrays) {
  return arrays instanceof Map ? arrays : new Map(Object.entries(arrays))
}

/** Write a shape as Python does. */
function tuple(shape) {
  return shape.length === 1 ? `(${shape[0]},)` : `(${shape.join(', ')})`
}

function compareOthers(want, have, rounding) {
  let [wrong, ties] = [0, 0]
  for (let index = 0; index < want.data.length; index++) {
    if (want.data[index] === have.data[index]) continue
    if (rounding?.dtype === 'bool' && rounding.data[index]) ties++
    else wrong++
  }
  const problem = wrong ? `differs in ${wrong} of ${want.data.length} places` : null
  return { found: Array(3).fill(wrong ? 1 : 0), problem, ties }
}

function compareFloats(want, have, rounding, tolerance, lenience) {
  const [expected, actual] = [numbers(want), numbers(have)]
  const scale = scaleOf(expected, want.shape)
  const found = [0, 0, 0]
  for (let index = 0; index < expected.length; index++) {
    const [wanted, given] = [expected[index], actual[index]]
    let difference = 0
    if (Number.isFinite(wanted) && Number.isFinite(given)) difference = Math.abs(wanted - given)
    else if (!Object.is(wanted, given)) return { problem: 'has NaN or infinity in other places than expected' }
    const allowed = rounding ? Number(rounding.data[index]) : 0
    const limit = Math.max(tolerance.absolute, tolerance.relative * scale[index], lenience * allowed)
    found[0] = Math.max(found[0], difference)
    found[1] = Math.max(found[1], ratio(difference, Math.max(scale[index], allowed)))
    found[2] = Math.max(found[2], ratio(difference, limit))
  }
  return { found, problem: found[2] <= 1 ? null : 'is outside the tolerance' }
}

/** Return the quotient, where nothing in nothing is 0 and something in nothing is infinite. */
function ratio(difference, size) {
  if (size > 0) return difference / size
  return difference > 0 ? Infinity : 0
}

/** Return what each number is to be seen against: its own size, or the largest of its row and of its channel. */
function scaleOf(expected, shape) {
  const own = expected.map((value) => (Number.isFinite(value) ? Math.abs(value) : 0))
  const sizes = withoutFills(own)
  const columns = shape.length > 1 ? shape[shape.length - 1] : 1
  const channels = new Float64Array(columns)
  sizes.forEach((size, index) => (channels[index % columns] = Math.max(channels[index % columns], size)))
  for (let start = 0; start < sizes.length; start += columns) {
    let row = columns > 1 ? 0 : Infinity // a row of one number has no say
    for (let column = 0; column < columns; column++) row = Math.max(row, sizes[start + column])
    for (let column = 0; column < columns; column++) {
      own[start + column] = Math.max(own[start + column], Math.min(row, channels[column]))
    }
  }
  return own
}

/** Return magnitudes with 0 for what is no result: beyond 1e4, and several alike or far beyond all others. */
function withoutFills(sizes) {
  let left = sizes
  for (let turn = 0; turn < MOST_FILLS; turn++) {
    const top = left.reduce((most, size) => Math.max(most, size), 0)
    if (top < FILL) break
    const others = left.map((size) => (size >= top * (1 - 1e-4) ? 0 : size))
    const alike = left.reduce((count, size) => count + (size >= top * (1 - 1e-4)), 0)
    if (alike < 2 && others.some((size) => size > top / 1000)) break
    left = others
  }
  return left
}

/** Return the numbers of an array as a Float64Array, those of float16 among them. */
export function numbers({ dtype, data }) {
  return Float64Array.from(data, dtype === 'float16' ? fromHalf : Number)
}

function fromHalf(bits) {
  const [sign, exponent, fraction] = [bits >> 15 ? -1 : 1, (bits >> 10) & 31, bits & 1023]
  if (exponent === 31) return fraction ? NaN : sign * Infinity
  return sign * (exponent ? (1024 + fraction) * 2 ** (exponent - 25) : fraction * 2 ** -24)
}

// ------------------------------------------------------------------ running

/** Return one of our arrays as a tensor of `ort`: the module onnxruntime-node or onnxruntime-web. */
export function toTensor(ort, { dtype, shape, data }) {
  return new ort.Tensor(dtype, data, shape)
}

/** Return a tensor as one of our arrays. */
export function fromTensor({ type, dims, data }) {
  // With `Float16Array`, where JavaScript has one, onnxruntime gives that in place of bits.
  const bits = type === 'float16' && !(data instanceof Uint16Array)
  const own = bits ? new Uint16Array(data.buffer, data.byteOffset, data.length) : data
  return { dtype: type, shape: [...dims], data: own }
}

/**
 * Run every case in a session and return the rows of `compare`.
 * `onCase(oneCase, rows, outputs)` is called, and awaited, after each; `outputs` is a Map of arrays.
 */
export async function replay(ort, session, cases, tolerance, { lenience = 1, onCase } = {}) {
  const all = []
  for (const each of cases) {
    const outputs = await runCase(ort, session, each)
    const rows = compare(each, outputs, tolerance, lenience)
    all.push(...rows)
    await onCase?.(each, rows, outputs)
  }
  return all
}

async function runCase(ort, session, { inputs }) {
  try {
    const feeds = Object.fromEntries([...asMap(inputs)].map(([name, array]) => [name, toTensor(ort, array)]))
    const results = await session.run(feeds)
    return new Map(session.outputNames.map((name) => [name, fromTensor(results[name])]))
  } catch (error) {
    const shapes = [...asMap(inputs)].map(([name, { shape }]) => `\`${name}\` ${tuple(shape)}`).join(', ')
    throw new BundleError(`onnxruntime cannot run the model on inputs ${shapes}: ${firstLine(error)}`)
  }
}

function firstLine(error) {
  return String(error?.message ?? error).trim().split('\n')[0]
}

// What steers a terminal, ends a line, turns the order of letters, or is not seen.
const UNPRINTABLE = /(?! )[\p{C}\p{Z}\p{Default_Ignorable_Code_Point}]/gu

/** Return text with escapes for what a terminal should not be given from a stranger, as Python writes them. */
export function printable(text) {
  return text.replace(UNPRINTABLE, (each) => {
    const code = each.codePointAt(0)
    const name = { 9: 't', 10: 'n', 13: 'r' }[code]
    const [mark, digits] = code < 0x100 ? ['x', 2] : code < 0x10000 ? ['u', 4] : ['U', 8]
    return `\\${name ?? mark + code.toString(16).padStart(digits, '0')}`
  })
}

/** Return the rows of `compare` as a table in plain text. */
export function formatRows(rows) {
  const table = [['case', 'output', 'shape', 'max abs', 'max rel', 'of limit', '']]
  for (const row of rows) {
    const ties = row.ties ? ` (${row.ties} decided by rounding)` : ''
    const sizes = [scientific(row.max_abs), scientific(row.max_rel), twoDigits(row.of_limit)]
    const verdict = printable((row.passed ? 'ok' : `FAILED: ${row.problem}`) + ties)
    table.push([printable(row.case), printable(row.name), row.shape.join('x') || 'scalar', ...sizes, verdict])
  }
  const widths = [0, 1, 2, 3, 4, 5].map((column) => Math.max(...table.map((line) => line[column].length)))
  return table.map((line) => [...widths.map((width, i) => line[i].padEnd(width)), line[6]].join('  ')).join('\n')
}

/** Write a number as Python's `.1e` does. */
function scientific(number) {
  if (!Number.isFinite(number)) return Number.isNaN(number) ? 'nan' : 'inf'
  return number.toExponential(1).replace(/([+-])(\d)$/, '$10$2')
}

/** Write a number as Python's `.2g` does. */
function twoDigits(number) {
  const text = scientific(number)
  if (!Number.isFinite(number)) return text
  const exponent = Number(text.split('e')[1])
  return exponent < -4 || exponent >= 2 ? text.replace('.0e', 'e') : String(Number(text))
}

// ------------------------------------------- the outline of an ONNX file

// All of it is what verify.py has, which says why.
const MARKERS = ['*/', '/*']
const UNLISTED = ['.DS_Store', 'Thumbs.db']
const MOST_BYTES = 2 ** 31 - 1
const DEEPEST = 100
const MOST_FIELDS = 2_000_000
const DATA_KEYS = ['location', 'offset', 'length', 'checksum']

// The fields of messages by how they are written: numbers of what is there once, with the messages that lead to
// tensors; of what is there more than once; then plain numbers, of what tells its length, varints, 4 bytes, 8 bytes.
const OUTLINE = {
  model: [{ 7: 'graph' }, { 20: 'training', 25: 'function' }, [2, 3, 4, 6, 8, 14, 26], [1, 5]],
  training: [{ 1: 'graph', 2: 'graph' }, {}, [3, 4]],
  function: [{}, { 7: 'node', 11: 'attribute' }, [1, 4, 5, 6, 8, 9, 10, 12, 13, 14]],
  graph: [{}, { 1: 'node', 5: 'tensor', 15: 'sparse' }, [2, 10, 11, 12, 13, 14, 16]],
  node: [{}, { 5: 'attribute' }, [1, 2, 3, 4, 6, 7, 8, 9, 10]],
  attribute: [
    { 5: 'tensor', 6: 'graph', 22: 'sparse' },
    { 10: 'tensor', 11: 'graph', 23: 'sparse' },
    [1, 4, 7, 8, 9, 13, 14, 15, 21],
    [3, 8, 20],
    [2, 7],
  ],
  sparse: [{ 1: 'tensor', 2: 'tensor' }, {}, [3], [3]],
  tensor: [{}, { 13: 'entry' }, [1, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 16], [1, 2, 5, 7, 11, 14], [4], [10]],
  entry: [{ 1: null, 2: null }, {}],
}

const FIELDS = Object.fromEntries(Object.entries(OUTLINE).map(([kind, message]) => [kind, byTag(message)]))

/** Return the message that each field holds, and whether it may be there once only, by its number and wire type. */
function byTag([once, each, texts = [], numbers = [], floats = [], doubles = []]) {
  const inner = (fields, isOnce) => Object.entries(fields).map(([number, inside]) => [number * 8 + 2, [inside, isOnce]])
  const plain = (numbers, wire) => numbers.map((number) => [number * 8 + wire, [null, false]])
  const leaves = [...plain(texts, 2), ...plain(numbers, 0), ...plain(floats, 5), ...plain(doubles, 1)]
  return new Map([...inner(once, true), ...inner(each, false), ...leaves])
}

/** Throw unless all that an ONNX file, a Uint8Array, reads from elsewhere lies in the files of an object by name. */
export function checkExternalData(model, bytes, files) {
  const notOnnx = (problem) => new BundleError(`${model} is not an ONNX file: ${problem}.`)
  for (const [key, value] of externalData(bytes, notOnnx)) {
    const name = asciiText(key)
    if (!DATA_KEYS.includes(name)) throw notOnnx(`external data has no entry ${shown(key)}`)
    if (name !== 'location') continue
    const location = utf8(value)
    if (location !== null && Object.hasOwn(files, location)) continue
    throw new BundleError(`${model} takes weights from ${shown(value)}, which is no file of the bundle.`)
  }
}

function asciiText(bytes) {
  return bytes.length > 20 ? null : String.fromCharCode(...bytes)
}

function utf8(bytes) {
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes)
  } catch {
    return null
  }
}

function shown(bytes) {
  const text = new TextDecoder('utf-8', { ignoreBOM: true }).decode(bytes.subarray(0, 200))
  return bytes.length <= 200 ? `\`${text}\`` : `\`${text}\` and so on`
}

/** Yield key and value of every entry of external data; `notOnnx` makes the error of what is not strictly ONNX. */
function* externalData(bytes, notOnnx) {
  let [kind, at, end, seen] = ['model', 0, bytes.length, new Map()]
  const above = []
  const varint = (most) => {
    for (let [value, index] = [0, 0]; index < most; index++) {
      if (at >= end) throw notOnnx('it is cut short')
      const byte = bytes[at++]
      value += (byte & 0x7f) * 2 ** (7 * index)
      if (byte === 0 && index) break
      if (byte < 0x80) return value
    }
    throw notOnnx('a number in it has more bytes than it needs')
  }
  const empty = bytes.subarray(0, 0)
  for (let count = 0; count < MOST_FIELDS; count++) {
    while (at === end) {
      if (kind === 'entry') yield [seen.get(0x0a) ?? empty, seen.get(0x12) ?? empty]
      if (!above.length) return
      ;[kind, end, seen] = above.pop()
    }
    const tag = varint(5)
    const wire = tag % 8
    const field = FIELDS[kind].get(tag)
    if (!field) throw notOnnx(`a ${kind} has no field ${Math.floor(tag / 8)} of wire type ${wire}`)
    const [inside, once] = field
    if (wire === 0) {
      varint(10)
      continue
    }
    const size = wire === 2 ? varint(5) : wire === 1 ? 8 : 4
    if (size > end - at) throw notOnnx('it is cut short')
    if (once) {
      if (seen.has(tag)) throw notOnnx(`field ${Math.floor(tag / 8)} of a ${kind} is there twice`)
      seen.set(tag, bytes.subarray(at, at + size))
    }
    if (!inside) {
      at += size
    } else if (above.length === DEEPEST) {
      throw notOnnx(`messages lie in each other more than ${DEEPEST} deep`)
    } else {
      above.push([kind, end, seen])
      ;[kind, end, seen] = [inside, at + size, new Map()]
    }
  }
  throw notOnnx(`it has more than ${MOST_FIELDS} fields`)
}

// ------------------------------------------------------- the command in Node

const USAGE = 'usage: node verify.mjs BUNDLE [--json]'

if (globalThis.process?.versions?.node && process.argv[1]) {
  const [{ realpathSync }, { pathToFileURL }] = await Promise.all([import('node:fs'), import('node:url')])
  const main = (() => {
    try {
      return pathToFileURL(realpathSync(process.argv[1])).href
    } catch {
      return null // as for the input of `node -`
    }
  })()
  if (import.meta.url === main) process.exitCode = await command(process.argv.slice(2))
}

/** Verify a bundle. 0: every case matched; 1: it did not, or could not be checked; 2: wrong usage. */
async function command(words) {
  process.stdout.on('error', () => process.exit(1)) // whoever read it, `head` for example, has gone
  const [folder, ...more] = words.filter((word) => word !== '--json')
  if (words.includes('--help') || words.includes('-h')) {
    console.log(`${USAGE}\n\nReplay a bundle's golden cases with the onnxruntime-node installed in this folder.`)
    return 0
  }
  if (!folder || more.length || folder.startsWith('-')) {
    const received = printable(words.join(' ')) || 'nothing'
    console.error(`${USAGE}\nerror: one BUNDLE is needed, the folder of an export. Received: ${received}`)
    return 2
  }
  try {
    const { engine, rows } = await verifyFolder(folder)
    const failed = rows.filter((row) => !row.passed).length
    if (words.includes('--json')) {
      const plain = (_, value) => (typeof value === 'number' && !Number.isFinite(value) ? String(value) : value)
      console.log(inAscii(JSON.stringify({ passed: !failed, provider: engine, rows }, plain, 2)))
    } else {
      console.log(formatRows(rows))
      console.log(`${rows.length - failed} of ${rows.length} outputs match on ${engine}.`)
    }
    return failed ? 1 : 0
  } catch (error) {
    const known = error instanceof BundleError || error.syscall || error.code === 'ERR_FS_FILE_TOO_LARGE'
    console.error(`error: ${printable((known ? firstLine(error) : `unexpected ${error.stack}`).replace(/\s+/g, ' '))}`)
    return 1
  }
}

/** Return JSON whose letters beyond ASCII, and what steers a terminal, are escaped. */
function inAscii(json) {
  return json.replace(/[^\n -~]/g, (each) => `\\u${each.charCodeAt(0).toString(16).padStart(4, '0')}`)
}

async function verifyFolder(folder) {
  const [fs, path] = await Promise.all([import('node:fs/promises'), import('node:path')])
  const manifest = await checkManifest(await readManifest(fs, path, folder))
  const { ort, version } = await loadRuntime(path, manifest.lowest_onnxruntime)
  await checkFiles(fs, path, folder, manifest.sha256)
  const cases = await readCases(await fs.readFile(path.join(folder, CASES)), manifest)
  const model = path.join(folder, MODEL) // a path, so that onnxruntime finds the weights that lie beside it
  if ((await fs.stat(model)).size > MOST_BYTES) {
    throw new BundleError(`${model} is not an ONNX file: protobuf reads at most 2 GiB, and it is larger.`)
  }
  checkExternalData(model, await fs.readFile(model), manifest.sha256)
  const options = { executionProviders: ['cpu'], logSeverityLevel: 4 } // errors are thrown as well
  const session = await ort.InferenceSession.create(model, options).catch((error) => {
    throw new BundleError(`onnxruntime-node ${version} cannot load ${model}: ${firstLine(error)}`)
  })
  const rows = await replay(ort, session, cases, manifest.parity.tolerance)
  // An export may have put another bundle there meanwhile.
  const read = Object.keys(manifest.sha256).filter((name) => name.startsWith(MODEL) || name === CASES)
  await checkHashes(path, folder, manifest.sha256, read)
  return { engine: `onnxruntime-node ${version}`, rows }
}

/** Read a manifest that is a file of no great size; a link, a pipe or a device is refused unread: some never end. */
async function readManifest(fs, path, folder) {
  const file = path.join(folder, MANIFEST)
  const entry = await fs.lstat(file).catch((error) => {
    if (!['ENOENT', 'ENOTDIR'].includes(error.code)) throw error
  })
  if (!entry || entry.isDirectory()) throw new BundleError(`No bundle at ${folder}: it has no ${MANIFEST}.`)
  checkFile(entry, file)
  const { O_RDONLY, O_NOFOLLOW = 0, O_NONBLOCK = 0 } = fs.constants
  const handle = await fs.open(file, O_RDONLY | O_NOFOLLOW | O_NONBLOCK)
  try {
    const status = await handle.stat()
    checkFile(status, file)
    if (status.size > MOST_JSON) throw tooLarge(file)
    return await handle.readFile('latin1')
  } finally {
    await handle.close()
  }
}

function checkFile(entry, file) {
  if (entry.isSymbolicLink()) {
    throw new BundleError(`${file} is a symbolic link; a bundle holds files of its own only.`)
  }
  if (!entry.isFile()) throw new BundleError(`${file} is neither a file nor a folder.`)
}

/** Load the onnxruntime-node of the folder the command is run in, or else of the one this file lies in. */
async function loadRuntime(path, lowest) {
  const { createRequire } = await import('node:module')
  let ort
  for (const place of [path.join(process.cwd(), 'anything.js'), import.meta.url]) {
    try {
      ort ??= createRequire(place)('onnxruntime-node')
    } catch (error) {
      if (error.code === 'MODULE_NOT_FOUND') continue
      throw new BundleError(`onnxruntime-node is broken: ${firstLine(error)}`)
    }
  }
  if (!ort) {
    const remedy = 'Install it with `npm install --ignore-scripts onnxruntime-node`.'
    throw new BundleError(`onnxruntime-node is not installed in this folder. ${remedy}`)
  }
  const version = ort.env.versions?.node ?? 'of an unknown version'
  const [[major, minor], [least, lesser]] = [version, lowest].map((each) => each.split('.').map(Number))
  if (!(major > least || (major === least && minor >= lesser))) {
    const found = `onnxruntime-node ${version} is installed`
    throw new BundleError(`The bundle needs onnxruntime ${lowest} or newer, and ${found}. Upgrade onnxruntime-node.`)
  }
  return { ort, version }
}

/** Check that the folder holds the files that are listed, as they were, no others, and nothing that leads out of it. */
async function checkFiles(fs, path, folder, hashes) {
  const names = Object.keys(hashes)
  const leadsOut = (part) => ['', '.', '..'].includes(part) || part.includes(path.sep) || path.isAbsolute(part)
  const outside = names.find((name) => name.split('/').some(leadsOut))
  if (outside !== undefined) throw new BundleError(`${MANIFEST} lists \`${outside}\`, which is outside the bundle.`)
  const marked = names.find((name) => MARKERS.some((marker) => name.includes(marker)))
  if (marked !== undefined) {
    throw new BundleError(`${MANIFEST} lists \`${marked}\`, which onnxruntime may take for no file.`)
  }
  const present = await filesIn(fs, path, folder)
  const there = new Set(present)
  const missing = names.filter((name) => !there.has(name)).sort()
  if (missing.length) throw new BundleError(`${folder} is incomplete: ${missing[0]} is missing.`)
  const extra = present.filter((name) => !Object.hasOwn(hashes, name) && name !== MANIFEST).sort()
  if (extra.length) {
    throw new BundleError(`${folder} holds ${extra[0]}, which its manifest does not list. Keep other files elsewhere.`)
  }
  await checkHashes(path, folder, hashes, names)
}

async function checkHashes(path, folder, hashes, names) {
  for (const name of names) {
    const file = path.join(folder, name)
    if ((await sha256OfFile(file)) !== hashes[name]) {
      throw new BundleError(`${file} is not the file that was exported: its sha256 differs from the manifest's.`)
    }
  }
}

/** Return the names of all files below a folder; a link, a pipe or a device is refused unread. */
async function filesIn(fs, path, folder) {
  const [found, waiting] = [[], ['']]
  while (waiting.length) {
    const prefix = waiting.pop()
    if (prefix.split('/').length > MOST_DEPTH + 1) {
      throw new BundleError(`${folder} holds folders that are more than ${MOST_DEPTH} deep.`)
    }
    for (const entry of await fs.readdir(path.join(folder, prefix), { withFileTypes: true })) {
      if (entry.isDirectory()) {
        if (entry.name !== '__pycache__') waiting.push(`${prefix}${entry.name}/`)
      } else if (!UNLISTED.includes(entry.name) || !entry.isFile()) {
        checkFile(entry, path.join(folder, prefix, entry.name))
        found.push(prefix + entry.name)
      }
    }
  }
  return found
}

async function sha256OfFile(file) {
  const [{ createReadStream }, { createHash }] = await Promise.all([import('node:fs'), import('node:crypto')])
  const hash = createHash('sha256')
  for await (const piece of createReadStream(file)) hash.update(piece)
  return hash.digest('hex')
}
