// The live part of a page: replay the golden cases in onnxruntime-web, and run the model on the inputs of a form.
//
// A tensor is {name, dtype, shape, data}: the name of NumPy's dtype, a list of sizes, and a typed array in row order,
// or a list of strings. Look up tensors in lists or Maps: `{}['constructor']` is a function.
import { page } from './examples.mjs'
import { heatmaps, make, numberText, scrolling, unpacked } from './heatmaps.mjs'

const TYPED_ARRAYS = {
  bool: Uint8Array, uint8: Uint8Array, uint16: Uint16Array, uint32: Uint32Array, uint64: BigUint64Array,
  int8: Int8Array, int16: Int16Array, int32: Int32Array, int64: BigInt64Array,
  float16: globalThis.Float16Array, float32: Float32Array, float64: Float64Array,
}
const isFloat = ({ dtype }) => dtype.startsWith('float')
const product = (sizes) => sizes.reduce((result, size) => result * size, 1)
const NOT_FINITE = ['NaN', 'Infinity', '-Infinity'] // strings, since JSON has no such numbers
const MAX_NUMBERS = 60 // limits of examples.py
const MAX_SCORED_POSITIONS = 64
const MAX_CLASSES = 5
const MAX_CLASSES_OF_POSITION = 3

function arrayType(dtype) {
  if (!TYPED_ARRAYS[dtype]) throw new Error(`This browser has no arrays of ${dtype}; a newer one has.`)
  return TYPED_ARRAYS[dtype]
}

async function decoded(tensor) {
  if (tensor.dtype === 'string') return tensor
  return { ...tensor, data: new (arrayType(tensor.dtype))((await unpacked(tensor.data)).buffer) }
}

// ------------------------------------------------------------- onnxruntime

/** Return a function that runs the model: a list of tensors to a Map of tensors by output name. */
async function openModel({ module, binary, model }) {
  const source = new Blob([await unpacked(module)], { type: 'text/javascript' })
  const ort = await import(URL.createObjectURL(source))
  ort.env.wasm.numThreads = 1 // threads need SharedArrayBuffer, which a page from a file does not have
  ort.env.wasm.wasmBinary = await unpacked(binary)
  ort.env.logLevel = 'error'
  const session = await ort.InferenceSession.create(await unpacked(model), { executionProviders: ['wasm'] })
  let last = Promise.resolve() // a session runs one request at a time
  return (tensors) => {
    const feeds = tensors.map(({ name, dtype, shape, data }) => [name, new ort.Tensor(dtype, data, shape)])
    const run = last.then(() => session.run(Object.fromEntries(feeds)))
    last = run.catch(() => {})
    return run.then((results) => new Map(Object.entries(results).map(([name, { type, dims, data }]) =>
      [name, { name, dtype: type, shape: [...dims], data }])))
  }
}

/** Return an error as a sentence; that of onnxruntime without its codes. */
function sentence(error) {
  const text = String(error?.message ?? error)
  const [, reason] = /ERROR_MESSAGE: (.*)/s.exec(text) ?? []
  return reason ? `onnxruntime cannot run these inputs: ${reason.trim()}` : text
}

// ------------------------------------------------------------------ replay

/** Compare an output with the expected one: {difference, share, problem}, `problem` null for a match. */
function compare(expected, limits, actual) {
  const infinite = { difference: Infinity, share: Infinity }
  if (!actual) return { ...infinite, problem: 'is missing' }
  const [type, expectedType] = [actual, expected].map(({ dtype, shape }) => `${dtype} of shape (${shape.join(', ')})`)
  if (type !== expectedType) return { ...infinite, problem: `is ${type}, expected ${expectedType}` }
  if (isFloat(expected)) return compareFloats(expected.data, limits.data, actual.data)
  // limits of non-floats: true if rounding decides the element
  const wrong = expected.data.reduce((sum, value, at) => sum + (value !== actual.data[at] && !limits.data[at]), 0)
  return wrong
    ? { difference: 1, share: 1, problem: `differs in ${wrong} of ${expected.data.length} elements` }
    : { difference: 0, share: 0, problem: null }
}

function compareFloats(expected, limits, actual) {
  let [difference, share] = [0, 0]
  for (let index = 0; index < expected.length; index++) {
    if (Object.is(expected[index], actual[index])) continue
    const distance = Math.abs(expected[index] - actual[index])
    if (!Number.isFinite(distance)) {
      return { difference: Infinity, share: Infinity, problem: 'has NaN or infinity in other places than expected' }
    }
    difference = Math.max(difference, distance)
    if (distance > 0) share = Math.max(share, distance / limits[index]) // infinite for a limit of 0
  }
  return { difference, share, problem: share <= 1 ? null : 'is outside the tolerance' }
}

/** Run a golden case and return its outputs' comparisons. */
async function replayCase(run, { name, inputs, outputs }) {
  const results = await run(await Promise.all(inputs.map(decoded))).catch((error) => {
    throw new Error(`case ${name}: ${sentence(error)}`)
  })
  return Promise.all(outputs.map(async (output) => {
    const [expected, limits] = await Promise.all([decoded(output), decoded(output.limits)])
    return { name: output.name, ...compare(expected, limits, results.get(output.name)) }
  }))
}

/** Replay the golden cases and show a verdict for each of them; return whether all match. */
async function replay(run) {
  const table = document.getElementById('replay-rows')
  let [count, failures, worst, first] = [0, 0, 0, '']
  const begin = performance.now()
  for (const [index, golden] of page.cases.entries()) {
    showVerdict(`Replaying the golden cases in your browser: ${index} of ${page.cases.length} …`)
    await new Promise((resolve) => setTimeout(resolve)) // the browser draws the verdict
    const outputs = await replayCase(run, golden)
    const problems = outputs.filter(({ problem }) => problem)
    const largest = (key) => outputs.reduce((most, output) => Math.max(most, output[key]), 0)
    table.append(make('tr', {}, make('th', { scope: 'row', textContent: golden.name }),
      make('td', {
        className: problems.length ? 'bad' : 'good',
        textContent: problems.map(({ name, problem }) => `${name} ${problem}`).join('; ') || 'matches',
      }),
      make('td', { className: 'number', textContent: differenceText(largest('difference')) }),
      make('td', { className: 'number', textContent: largest('share').toPrecision(2) })))
    count += outputs.length
    failures += problems.length
    if (problems.length) first ||= `${problems[0].name} in case ${golden.name} ${problems[0].problem}`
    worst = Math.max(worst, largest('share'))
  }
  document.getElementById('replayed').hidden = false
  const place = `over ${page.cases.length} cases in your browser`
  showVerdict(failures
    ? `Replayed: ${failures} of ${count} outputs differ ${place}. ${first}${failures > 1 ? `, and ${failures - 1} more` : ''}.`
    : `Replayed: all ${count} outputs match ${place} (onnxruntime-web ${page.live.version}, ${Math.round(performance.now() - begin)} ms; ` +
      `largest difference ${worst.toFixed(2)} of its limit).`, failures ? 'bad' : 'good')
  return failures === 0
}

const differenceText = (value) => Number.isFinite(value) ? value.toExponential(1) : String(value)

function showVerdict(text, verdict = '') {
  const element = document.getElementById('replay')
  element.textContent = text
  element.className = `verdict ${verdict}`
  document.documentElement.dataset.live = { good: 'passed', bad: 'failed' }[verdict] ?? 'running'
}

// -------------------------------------------------------------------- form

const isPadding = (label) => /^([<[]?pad[>\]]?)?$/i.test(label)
const isUnknown = (label) => /^[<[]?unk(nown)?[>\]]?$/i.test(label)
const areCharacters = (labels) => labels.every((label) => [...label].length <= 1 || /^[<[].*[>\]]$/.test(label))
const wrapped = (value, { shape }) => shape.reduce((list) => [list], value) // as the only element of nested lists

/**
 * Return {spec, element, read} for an entry of form_data (live_data.py). read returns nested lists, or for a length a
 * number, null if the field is empty: then the length is the size of the axis. A tensor too large to edit ("fixed")
 * has no element.
 */
function fieldOf(spec) {
  const { name, text, fixed, first, labels, dtype } = spec
  if (fixed) return { spec }
  const values = first === null ? [] : [first].flat(Infinity)
  const isOne = first === null || values.length === 1
  const field = (tag, properties, read, isWide = false) => {
    const control = make(tag, { name, spellcheck: false, autocomplete: 'off', ...properties })
    const label = make('label', { textContent: name, className: isWide ? 'wide' : '' }, control)
    return { spec, element: label, read: () => read(control) }
  }
  if (spec.counts && /int/.test(dtype) && isOne) {
    const properties = { type: 'number', step: '1', min: '0', placeholder: 'all', value: values[0] ?? '' }
    return field('input', properties, ({ value }) => value === '' ? null : Number(value))
  }
  if (labels && spec.shape.length === 1 && isOne) {
    const select = field('select', {}, ({ value }) => wrapped(Number(value), spec))
    const order = labels.map((label, id) => [label, id]).sort(([a], [b]) => a.localeCompare(b))
    const control = select.element.querySelector('select')
    control.append(...order.map(([label, id]) => make('option', { value: String(id), textContent: label })))
    control.value = String(values[0])
    return select
  }
  if (text !== undefined) {
    const read = ({ value }) => [padded(idsOf(value, labels, name), spec)]
    return field('input', { type: 'text', value: text }, read, true)
  }
  if (isOne && dtype === 'string') {
    return field('input', { type: 'text', value: values[0] }, ({ value }) => wrapped(value, spec), true)
  }
  if (isOne && dtype === 'bool') {
    return field('input', { type: 'checkbox', checked: values[0] }, ({ checked }) => wrapped(checked, spec))
  }
  if (isOne && spec.shape.length <= 1 && !NOT_FINITE.includes(values[0])) {
    const [step, placeholder] = isFloat(spec) ? ['any', 'NaN'] : ['1', '']
    return field('input', { type: 'number', step, placeholder, value: values[0] }, ({ value }) => {
      if (value === '' && !isFloat(spec)) throw new Error(`${name} is empty`)
      return wrapped(value === '' ? NaN : Number(value), spec)
    })
  }
  return field('textarea', { value: JSON.stringify(first) }, ({ value }) => {
    try {
      return JSON.parse(value)
    } catch {
      throw new Error(`${name} must be nested lists of ${dtype === 'string' ? 'strings' : 'numbers'}, as in JSON`)
    }
  }, true)
}

/** Return the ids of a text: of its characters and of labels in brackets such as <s>, or of its words. */
function idsOf(text, labels, name) {
  const ids = new Map(labels.map((label, id) => [label, id]).reverse()) // of equal labels the first
  const brackets = areCharacters(labels) ? text.match(/[<[][^>\]]*[>\]]|[^]/gu) ?? [] : []
  const words = areCharacters(labels)
    ? brackets.flatMap((part) => ids.has(part) ? [part] : [...part])
    : text.split(/ +/).filter(Boolean)
  if (!words.length) throw new Error(`${name} is empty`)
  const unknown = labels.findIndex(isUnknown)
  return words.map((word) => {
    const id = ids.get(word) ?? unknown
    if (id < 0) throw new Error(`${name}: “${word}” is not among its labels`)
    return id
  })
}

/** Pad ids to the static size of the axis, with the padding label or, without one, id 0. */
function padded(ids, { name, shape, labels }) {
  const size = typeof shape[1] === 'number' ? shape[1] : ids.length
  if (ids.length > size) throw new Error(`${name} takes ${size} at most; it has ${ids.length}`)
  return [...ids, ...Array(size - ids.length).fill(Math.max(0, labels.findIndex(isPadding)))]
}

/** Return the tensors of the form; lengths come last, since an empty one is the size of the axis that it counts. */
async function readForm(fields) {
  const values = fields.map(({ spec, read }) => ({ spec, value: spec.fixed ? undefined : read() }))
  const isLength = ({ spec, value }) => value === null || (spec.counts && typeof value === 'number')
  const sizes = new Map()
  const tensors = []
  for (const { spec, value } of values.filter((entry) => !isLength(entry))) {
    const tensor = spec.fixed
      ? await decoded({ name: spec.name, ...spec.fixed })
      : tensorOf(spec, shapeOf(value, spec), value)
    tensor.shape.forEach((size, axis) => {
      if (typeof spec.shape[axis] === 'string') sizes.set(spec.shape[axis], size)
    })
    tensors.push(tensor)
  }
  for (const { spec, value } of values.filter(isLength)) {
    const length = value ?? sizes.get(spec.counts)
    if (length === undefined) throw new Error(`${spec.name} is empty`)
    const shape = spec.shape.map((size) => typeof size === 'string' ? sizes.get(size) ?? 1 : size)
    tensors.push(tensorOf(spec, shape, Array(product(shape)).fill(length)))
  }
  return tensors
}

function shapeOf(value, { name }) {
  if (!Array.isArray(value)) return []
  const shapes = value.map((item) => shapeOf(item, { name }))
  if (new Set(shapes.map(String)).size > 1) throw new Error(`${name}: its lists differ in length`)
  return [value.length, ...(shapes[0] ?? [])]
}

function tensorOf({ name, dtype }, shape, value) {
  const values = [value].flat(Infinity)
  const range = /int64/.test(dtype) ? ' of a magnitude below 2^53' : ''
  const refuse = (item) => { throw new Error(`${name} must hold ${dtype}${range}. Received: ${JSON.stringify(item)}.`) }
  if (dtype === 'string') {
    values.filter((item) => typeof item !== 'string').forEach(refuse)
    return { name, dtype, shape, data: values }
  }
  const isAllowed = (item) =>
    ['number', 'boolean'].includes(typeof item) || (isFloat({ dtype }) && NOT_FINITE.includes(item))
  values.filter((item) => !isAllowed(item)).forEach(refuse)
  const converted = /int64/.test(dtype) // an unsafe integer becomes 0, which the check below refuses
    ? (item) => BigInt(Number.isSafeInteger(Number(item)) ? Number(item) : 0)
    : (item) => dtype === 'bool' ? Number(Boolean(item)) : Number(item)
  const data = arrayType(dtype).from(values, converted)
  if (!isFloat({ dtype })) values.filter((item, index) => Number(data[index]) !== Number(item)).forEach(refuse)
  return { name, dtype, shape, data }
}

// ----------------------------------------------------------------- answers

/** Return the elements that show the outputs of a run: predictions first, then attention maps. */
function answersOf(inputs, outputs) {
  const tensors = new Map([...inputs.map((tensor) => [tensor.name, tensor]), ...outputs])
  const sequences = [...page.inputs, ...page.outputs].flatMap((spec) => {
    const words = hasPositions(spec) ? wordsOf(spec, tensors.get(spec.name)) : null
    return words ? [{ axis: spec.shape[spec.has_batch ? 1 : 0], words }] : []
  })
  const labelsAlong = (axis) => { // a name is one axis; two axes may share a static size
    const matches = sequences.filter((sequence) => sequence.axis === axis)
    return matches.length && (typeof axis === 'string' || matches.length === 1) ? matches[0].words : null
  }
  const maps = page.outputs.filter(({ layer }) => layer).map((spec) => {
    const { shape, data } = firstRow(spec, tensors.get(spec.name))
    const [queries, keys] = [shape.length > 1 ? spec.shape.at(-2) : null, spec.shape.at(-1)]
    const mapShape = [product(shape.slice(0, -2)), shape.at(-2) ?? 1, shape.at(-1)]
    const labels = { queries: queries === null ? null : labelsAlong(queries), keys: labelsAlong(keys) }
    return heatmaps({ output: spec.name, layer: spec.layer, shape: mapShape, of: mapShape, weights: data, ...labels })
  })
  const predictions = page.outputs.filter(({ layer }) => !layer).map((spec) => [spec, tensors.get(spec.name)])
  const isText = ([spec, tensor]) => wordsOf(spec, tensor) !== null
  const sorted = [...predictions.filter(isText), ...predictions.filter((entry) => !isText(entry))]
  return [...sorted.map(([spec, tensor]) => predictionOf(spec, tensor)), ...maps]
}

/** Return the first example of a tensor. */
function firstRow({ has_batch: hasBatch }, { dtype, shape, data }) {
  if (!hasBatch) return { dtype, shape, data }
  return { dtype, shape: shape.slice(1), data: data.slice(0, data.length / (shape[0] || 1)) }
}

const rank = (spec) => spec.shape.length - (spec.has_batch ? 1 : 0) // of one example
const positionRank = (spec) => isFloat(spec) ? 2 : 1 // scores have an axis of classes behind that of positions
const hasPositions = (spec) => rank(spec) === positionRank(spec)

/** Return the word of each position of the first example: a string, or the label of an id or of the best class. */
function wordsOf(spec, tensor) {
  const { labels, dtype } = spec
  const { data } = firstRow(spec, tensor)
  if (rank(spec) > positionRank(spec) || (!labels && dtype !== 'string')) return null
  if (dtype === 'string') return [...data]
  if (isFloat(spec)) return scoreRows(data, labels).map((row) => bestOf(row, labels, 1)[0]?.label ?? 'NaN')
  return Array.from(data, (id) => labels[Number(id)] ?? String(id))
}

function scoreRows(data, labels) {
  const size = labels.length
  const starts = Array.from({ length: data.length / size }, (_, row) => row * size)
  return starts.map((start) => Array.from(data.slice(start, start + size), Number))
}

/** Return the classes with the highest scores; none if a score is NaN. */
function bestOf(scores, labels, count) {
  if (scores.some(Number.isNaN)) return []
  const classes = scores.map((score, id) => ({ label: labels[id], score }))
  return classes.sort((a, b) => a.score === b.score ? 0 : b.score - a.score).slice(0, count)
}

/** Return the element of an output as `prediction` of page.html writes it. */
function predictionOf(spec, tensor) {
  const words = wordsOf(spec, tensor)
  const joint = !spec.labels ? ', ' : areCharacters(spec.labels) ? '' : ' '
  const parts = words
    ? [make('p', { className: 'answer', textContent: words.join(joint).trimEnd() })]
    : [make('p', {}, make('code', { textContent: numbersText(firstRow(spec, tensor)) }))]
  const hasScores = words && spec.labels && isFloat(spec)
  if (hasScores) parts.push(scoreTable(spec, scoreRows(firstRow(spec, tensor).data, spec.labels)))
  return make('div', { className: 'prediction' }, make('h4', { textContent: spec.name }), ...parts)
}

/** Return the table of the best classes: a row for each of them, or for each position of a sequence. */
function scoreTable(spec, rows) {
  const best = (scores, count) =>
    bestOf(scores, spec.labels, count).map(({ label, score }) => [label, numberText(score, 4)])
  const positionLine = (scores, position) => [position, ...best(scores, MAX_CLASSES_OF_POSITION).flat()]
  const lines = hasPositions(spec) ? rows.slice(0, MAX_SCORED_POSITIONS).map(positionLine) : best(rows[0], MAX_CLASSES)
  const hasMeter = spec.has_probabilities && !hasPositions(spec)
  const body = lines.map(([heading, ...cells]) => make('tr', {}, make('th', { scope: 'row', textContent: heading }),
    ...(cells.length ? cells : ['NaN']).map((text) => make('td', { textContent: text })),
    ...hasMeter ? [make('td', {}, make('meter', { value: Number(cells[0]), ariaHidden: 'true' }))] : []))
  const caption = make('caption', { textContent: spec.has_probabilities ? 'probability' : 'score' })
  const table = make('table', { className: 'best' }, caption, make('tbody', {}, ...body))
  return lines.length ? scrolling(table, `Classes of ${spec.name}`) : ''
}

function numbersText({ dtype, shape, data }) {
  const text = (value) => dtype === 'bool' ? Boolean(value) : isFloat({ dtype }) ? numberText(value, 6) : value
  const numbers = Array.from(data.slice(0, MAX_NUMBERS), text).join(' ')
  const more = data.length > MAX_NUMBERS ? ` … (${data.length} numbers)` : ''
  return `${shape.length > 1 ? `${shape.join(' × ')}: ` : ''}${numbers}${more}`
}

// -------------------------------------------------------------------- page

/** Show the form, and the answers to its inputs whenever they change. */
function showForm(run, form, answer) {
  const fields = page.inputs.map(fieldOf)
  let latest = 0
  const answerForm = async () => {
    const request = ++latest
    const parts = await readForm(fields)
      .then(async (tensors) => answersOf(tensors, await run(tensors)))
      .catch((error) => [make('p', { className: 'error', textContent: sentence(error) })])
    if (request !== latest) return // a later change has its own answer
    answer.replaceChildren(...parts)
    answer.dataset.request = String(request)
  }
  form.addEventListener('submit', (event) => { event.preventDefault(); answerForm() })
  form.addEventListener('input', answerForm)
  const elements = fields.filter(({ element }) => element).map(({ element }) => element)
  form.append(...elements, make('button', { textContent: 'Run' })) // an input named append would hide form.append
  return answerForm()
}

const form = document.getElementById('form')
let matches = false
try {
  const run = await openModel(page.live)
  matches = await replay(run)
  if (matches) await showForm(run, form, document.getElementById('answer'))
} catch (error) {
  showVerdict(`The ${matches ? 'form' : 'replay'} failed: ${sentence(error)}`, 'bad')
}
if (!matches) {
  form.append(make('p', { className: 'error', textContent: 'The model is not run here, since its replay failed.' }))
}
