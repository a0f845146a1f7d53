// The model in the page: a replay of its golden cases by onnxruntime-web, and a form that runs it.
import { exampleView, make, mapOf, unpacked } from './maps.mjs'
import { page } from './page.mjs'
import { fromTensor, numbers, openSession, readCases, replay, sha256, toTensor, TYPED_ARRAYS } from './replay.mjs'

/** Replay the golden cases and show the verdict; return the session and what the form reads, or null on a failure. */
async function replayHere({ manifest, ...live }, place) {
  const say = (text, verdict = '') => {
    place.textContent = text
    place.className = `verdict ${verdict}`
    document.documentElement.dataset.live = verdict === 'good' ? 'passed' : verdict === 'bad' ? 'failed' : 'running'
  }
  try {
    for (const spec of manifest.inputs) spec.counts = manifest.counts?.[spec.name]
    for (const spec of manifest.outputs) spec.weights_of = manifest.weights_of?.[spec.name]
    const [model, cases] = (await Promise.all([live.model, live.cases].map(unpacked))).map((buffer) => new Uint8Array(buffer))
    const isHashed = Boolean(crypto.subtle) // a page that came by plain http does not have it
    for (const [name, bytes] of [['model.onnx', model], ['parity/cases.npz', cases]]) {
      if (isHashed && await sha256(bytes) !== manifest.sha256[name]) throw new Error(`${name} in this page is not the file of the manifest`)
    }
    say('This page replays the same cases here, in your browser: starting onnxruntime-web …')
    const { ort, session } = await openSession(await unpacked(live.module), await unpacked(live.binary), model)
    const golden = await readCases(cases)
    const begun = performance.now()
    const onCase = (done) => {
      say(`This page replays the same cases here, in your browser: ${done} of ${golden.length} …`)
      return new Promise((resolve) => setTimeout(resolve)) // so that the page shows it
    }
    const rows = await replay(ort, session, golden, manifest.parity.tolerance, onCase)
    const failed = rows.filter((row) => row.problem)
    const worst = Math.max(0, ...rows.map((row) => row.of_limit))
    const matched = `${rows.length - failed.length} of ${rows.length} outputs over ${golden.length} cases match here, in your browser`
    say(failed.length
      ? `Replayed: ${matched}. Not ${failed.map((row) => `${row.name} in case ${row.case}: ${row.problem}`).join('; ')}.`
      : `Replayed: ${matched} (onnxruntime-web ${live.version}, ${Math.round(performance.now() - begun)} ms; ` +
        `largest difference ${worst.toFixed(2)} of its limit).${isHashed ? ' The hashes of model and cases are those of the manifest.' : ''}`,
    failed.length ? 'bad' : 'good')
    return failed.length ? null : { ort, session, manifest, golden }
  } catch (error) {
    say(`The replay failed: ${error.message ?? error}`, 'bad')
    return null
  }
}

const isWhole = (dtype) => /int/.test(dtype)
const isSpecial = (label) => /^[<[].*[>\]]$/.test(label)
const oneLetterEach = (labels) => labels.every((label) => [...label].length <= 1 || isSpecial(label))
const isSequence = (spec) => spec.shape.length === 2 && isWhole(spec.dtype)
const isPadding = (label) => label === '' || /^[<[]?pad[>\]]?$/i.test(label)

/** The form: text for labelled sequences, a list for labelled ids, numbers else; what lengths count is filled in. */
function showForm(running, form, answer) {
  const { manifest } = running
  const fields = new Map()
  for (const spec of manifest.inputs) {
    const field = fieldOf(spec, running.golden[0])
    fields.set(spec.name, field)
    if (!field.hidden) form.append(field.element)
  }
  const button = make('button', { type: 'submit', textContent: 'Run' })
  form.append(button)
  let turn = 0
  const run = async () => {
    const mine = ++turn
    try {
      const arrays = readForm(manifest, fields)
      const feeds = Object.fromEntries(Object.entries(arrays).map(([name, array]) => [name, toTensor(running.ort, array)]))
      const before = running.last ?? Promise.resolve()
      running.last = before.catch(() => {}).then(() => mine === turn ? running.session.run(feeds) : null)
      const outputs = await running.last
      if (mine === turn) answer.replaceChildren(...answersOf(manifest, arrays, outputs))
    } catch (error) {
      if (mine === turn) answer.replaceChildren(make('p', { className: 'error', textContent: String(error.message ?? error) }))
    }
    answer.dataset.turn = String(mine)
  }
  form.addEventListener('submit', (event) => { event.preventDefault(); run() })
  form.addEventListener('input', run)
  return run()
}

function fieldOf(spec, golden) {
  const labels = page.labels[spec.name], first = page.first[spec.name]
  const labelled = (control, wide = false) => make('label', { textContent: spec.name, className: wide ? 'wide' : '' }, control)
  if (labels && spec.shape.length === 1) {
    const order = labels.map((label, id) => [label, id]).sort(([a], [b]) => a.localeCompare(b))
    const select = make('select', { name: spec.name }, ...order.map(([label, id]) => make('option', { value: String(id), textContent: label })))
    select.value = String([first].flat()[0])
    return { element: labelled(select), read: () => [Number(select.value)] }
  }
  const written = labels && isSequence(spec) && first ? textOf(first[0], labels, page.lengths[spec.name]) : null
  if (written !== null) {
    const text = make('input', { name: spec.name, type: 'text', autocomplete: 'off', spellcheck: false, value: written })
    return { element: labelled(text, true), read: () => [padded(idsOf(text.value, labels, spec.name), spec, labels)] }
  }
  if (spec.counts) return { hidden: true }
  if (first === null) return { hidden: true, given: firstOf(golden.inputs.get(spec.name)) } // too many numbers to type
  if (spec.dtype === 'string' && [first].flat(Infinity).length === 1) {
    const text = make('input', { name: spec.name, type: 'text', autocomplete: 'off', spellcheck: false, value: [first].flat(Infinity)[0] })
    return { element: labelled(text, true), read: () => spec.shape.slice(1).reduce((inner) => [inner], [text.value]) }
  }
  if (spec.shape.length <= 1) {
    const isBool = spec.dtype === 'bool'
    const number = make('input', { name: spec.name, type: isBool ? 'checkbox' : 'number', step: isWhole(spec.dtype) ? '1' : 'any' })
    const value = [first].flat()[0]
    if (isBool) number.checked = Boolean(value)
    else number.value = String(value)
    return { element: labelled(number), read: () => [isBool ? number.checked : number.value === '' ? NaN : Number(number.value)] }
  }
  const area = make('textarea', { name: spec.name, spellcheck: false, value: JSON.stringify(first) })
  return { element: labelled(area, true), read: () => {
    try {
      return JSON.parse(area.value)
    } catch {
      throw new Error(`${spec.name} must be nested lists of ${spec.dtype === 'string' ? 'strings' : 'numbers'}, as in JSON`)
    }
  } }
}

/** The first example of an array. */
function firstOf({ dtype, shape, data }) {
  return { dtype, shape: [1, ...shape.slice(1)], data: data.slice(0, data.length / (shape[0] || 1)) }
}

/** A text that stands for these ids and no others, or null where labels have none. */
function textOf(ids, labels, length) {
  const shown = ids.slice(0, length ?? ids.length)
  while (length === undefined && shown.length > 1 && isPadding(labels[shown.at(-1)] ?? '-')) shown.pop()
  const text = shown.map((id) => labels[id] ?? '').join(oneLetterEach(labels) ? '' : ' ')
  try {
    return String(idsOf(text, labels, '')) === String(shown) ? text : null
  } catch {
    return null
  }
}

/** The ids of a text: at each place of the longest label that stands there, or of the unknown one. */
function idsOf(text, labels, name) {
  const letters = oneLetterEach(labels), ids = new Map(), found = []
  labels.forEach((label, id) => { if (label && !ids.has(label)) ids.set(label, id) })
  const longest = Math.max(...labels.map((label) => label.length))
  const unknown = labels.findIndex((label) => /^[<[]?unk(nown)?[>\]]?$/i.test(label))
  const ends = (at) => letters || at >= text.length || text[at] === ' '
  for (let at = 0; at < text.length;) {
    if (!letters && text[at] === ' ') {
      at++
      continue
    }
    let size = Math.min(longest, text.length - at)
    while (size > 0 && !(ids.has(text.slice(at, at + size)) && ends(at + size))) size--
    if (size === 0) {
      const word = letters ? String.fromCodePoint(text.codePointAt(at)) : text.slice(at).split(' ')[0]
      if (unknown < 0) throw new Error(`${name}: “${word}” is not among its labels`)
      size = word.length
      found.push(unknown)
    } else {
      found.push(ids.get(text.slice(at, at + size)))
    }
    at += size
  }
  if (!found.length) throw new Error(`${name} is empty`)
  return found
}

/** Ids of a sequence, with padding where the model has but one length. */
function padded(ids, spec, labels) {
  const size = spec.shape[1]
  if (typeof size === 'string') return ids
  if (ids.length > size) throw new Error(`${spec.name} takes ${size} at most; it has ${ids.length}`)
  return [...ids, ...Array(size - ids.length).fill(Math.max(0, labels.findIndex(isPadding)))]
}

/** Arrays of one example by input name, checked against the manifest; repeated where the batch is fixed. */
function readForm(manifest, fields) {
  const sizes = {}, arrays = {}
  const fit = (spec, shape) => {
    const wanted = `${spec.name} must have shape ${spec.shape.join(' × ') || '()'}`
    if (shape.length !== spec.shape.length) throw new Error(`${wanted}; it has ${shape.length} axes`)
    spec.shape.forEach((size, axis) => {
      const known = typeof size === 'string' ? (sizes[size] ??= shape[axis]) : size
      const where = typeof size === 'string' ? `, where ${size} is ${known}` : ''
      if (known !== shape[axis]) throw new Error(`${wanted}${where}; it has ${shape.join(' × ')}`)
    })
  }
  const batchOf = (spec) => typeof spec.shape[0] === 'number' ? spec.shape[0] : 1
  for (const spec of manifest.inputs) {
    const { given } = fields.get(spec.name)
    if (!given) continue
    arrays[spec.name] = repeated(given, batchOf(spec))
    fit(spec, arrays[spec.name].shape)
  }
  for (const spec of manifest.inputs) {
    const field = fields.get(spec.name)
    if (field.hidden) continue
    const value = field.read()
    const isScalar = spec.shape.length === 0
    const array = arrayOf(spec, isScalar ? [] : shapeOf(value, spec.name), [value].flat(Infinity))
    arrays[spec.name] = isScalar || array.shape[0] !== 1 ? array : repeated(array, batchOf(spec))
    fit(spec, arrays[spec.name].shape)
  }
  for (const spec of manifest.inputs) {
    if (arrays[spec.name]) continue // else a length, full
    const shape = spec.shape.map((size) => typeof size === 'string' ? sizes[size] ?? 1 : size)
    arrays[spec.name] = arrayOf(spec, shape, Array(shape.reduce((a, b) => a * b, 1)).fill(sizes[spec.counts]))
  }
  return arrays
}

function repeated(array, times) {
  if (times === 1 || array.shape[0] !== 1) return array
  if (array.dtype === 'string') return { ...array, shape: [times, ...array.shape.slice(1)], data: Array(times).fill(array.data).flat() }
  const data = new array.data.constructor(array.data.length * times)
  for (let i = 0; i < times; i++) data.set(array.data, i * array.data.length)
  return { ...array, shape: [times, ...array.shape.slice(1)], data }
}

function shapeOf(value, name) {
  if (!Array.isArray(value)) return []
  const inner = value.map((each) => shapeOf(each, name))
  if (inner.some((shape) => String(shape) !== String(inner[0]))) throw new Error(`${name}: its lists differ in length`)
  return [value.length, ...(inner[0] ?? [])]
}

const NOT_FINITE = ['NaN', 'Infinity', '-Infinity'] // JSON has them as text only

function arrayOf(spec, shape, given) {
  for (const value of given) {
    if (!fits(value, spec.dtype)) throw new Error(`${spec.name} must hold ${spec.dtype}; ${JSON.stringify(value)} is none`)
  }
  if (spec.dtype === 'string') return { dtype: spec.dtype, shape, data: given }
  if (spec.dtype === 'float16') {
    if (!globalThis.Float16Array) throw new Error(`${spec.name} is float16, which this browser does not have`)
    return { dtype: spec.dtype, shape, data: new Uint16Array(globalThis.Float16Array.from(given, Number).buffer) }
  }
  const isWide = /int64/.test(spec.dtype)
  return { dtype: spec.dtype, shape, data: TYPED_ARRAYS[spec.dtype].from(isWide ? given.map(BigInt) : given.map(Number)) }
}

function fits(value, dtype) {
  if (dtype === 'string') return typeof value === 'string'
  if (dtype === 'bool') return [true, false, 0, 1].includes(value)
  if (!isWhole(dtype)) return Number.isFinite(value) || NOT_FINITE.includes(value)
  const bits = Number(dtype.match(/\d+/)[0]), signed = !dtype.startsWith('u')
  const [low, high] = signed ? [-(2 ** (bits - 1)), 2 ** (bits - 1) - 1] : [0, 2 ** bits - 1]
  return Number.isSafeInteger(value) && value >= low && value <= high
}

/** What a run gave: text for labelled outputs, maps of attention, and the first numbers of the rest. */
function answersOf(manifest, arrays, outputs) {
  const words = {} // of the first example
  for (const spec of [...manifest.inputs, ...manifest.outputs]) {
    const labels = page.labels[spec.name]
    if (!labels) continue
    const array = withNumbers(firstOf(arrays[spec.name] ?? fromTensor(outputs[spec.name])))
    const isScores = /float/.test(spec.dtype)
    const ids = isScores ? largest(array) : Array.from(array.data, Number)
    const axes = isScores ? spec.shape.length - 1 : spec.shape.length
    words[spec.name] = { axes, axis: spec.shape[1], each: ids.map((id) => labels[id] ?? String(id)) }
  }
  const along = (axis) => {
    const found = Object.values(words).filter((one) => one.axes === 2 && one.axis === axis)
    return found.length === 1 || (found.length && typeof axis === 'string') ? [found[0].each] : null
  }
  const parts = []
  for (const spec of manifest.outputs) {
    const array = withNumbers(firstOf(fromTensor(outputs[spec.name])))
    if (words[spec.name]) {
      const joined = words[spec.name].each.join(oneLetterEach(page.labels[spec.name]) ? '' : ' ')
      parts.unshift(make('p', { className: 'note', textContent: spec.name }), make('p', { className: 'answer', textContent: joined }))
    } else if (spec.weights_of) {
      const size = spec.shape.length
      const map = mapOf(spec, array.data, array.shape, size > 2 ? along(spec.shape[size - 2]) : null, along(spec.shape[size - 1]))
      parts.push(make('section', {}, make('h3', { textContent: `${spec.name}: weights of ${spec.weights_of}` }), exampleView(map, 0)))
    } else {
      const write = /float/.test(spec.dtype) ? (x) => Number(x).toPrecision(6) : spec.dtype === 'bool' ? (x) => String(Boolean(x)) : String
      const shown = Array.from(array.data.slice(0, 60), write)
      const more = array.data.length > 60 ? ` … (${array.data.length} numbers)` : ''
      parts.push(make('p', {}, make('b', { textContent: `${spec.name} ` }), make('code', { textContent: shown.join(' ') + more })))
    }
  }
  return parts
}

/** float16 lies in its bits. */
const withNumbers = (array) => array.dtype === 'float16' ? { ...array, data: numbers(array) } : array

function largest(array) {
  const size = array.shape.at(-1), found = []
  for (let from = 0; from < array.data.length; from += size) {
    let best = 0
    for (let i = 1; i < size; i++) if (array.data[from + i] > array.data[from + best]) best = i
    found.push(best)
  }
  return found
}

const running = await replayHere(page.live, document.getElementById('replay'))
const form = document.getElementById('form')
if (running) await showForm(running, form, document.getElementById('answer'))
else form.replaceChildren(make('p', { className: 'error', textContent: 'The model is not run here, since its replay failed.' }))
