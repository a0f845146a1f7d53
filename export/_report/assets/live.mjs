// The model in the page: its golden cases replayed by onnxruntime-web, and a form that runs it.
import { checkManifest, fromTensor, numbers, readCases, replay, sha256, toTensor } from '../../_standalone/verify.mjs'
import { exampleView, make, mapOf, unpacked } from './maps.mjs'

/** Replays the golden cases and says what matched; returns the runtime and the session for the form. */
export async function proveHere(live, place) {
  const say = (text, verdict = '') => {
    place.textContent = text
    place.className = `verdict ${verdict}`
    document.documentElement.dataset.live = verdict === 'good' ? 'passed' : verdict === 'bad' ? 'failed' : 'running'
  }
  try {
    const manifest = await checkManifest(live.manifest)
    const [model, cases] = (await Promise.all([live.model, live.cases].map(unpacked))).map((buffer) => new Uint8Array(buffer))
    for (const [name, bytes] of [['model.onnx', model], ['parity/cases.npz', cases]]) {
      if ((await sha256(bytes)) !== manifest.sha256[name]) throw new Error(`${name} in this page is not the file of the manifest`)
    }
    say('This page replays the same cases here, in your browser: starting onnxruntime-web …')
    const url = URL.createObjectURL(new Blob([await unpacked(live.module)], { type: 'text/javascript' }))
    const ort = await import(url)
    ort.env.wasm.numThreads = 1 // threads want SharedArrayBuffer, which a page from a file has not
    ort.env.wasm.wasmBinary = await unpacked(live.binary)
    ort.env.logLevel = 'error'
    const session = await ort.InferenceSession.create(model, { executionProviders: ['wasm'] })
    const golden = await readCases(cases)
    const begun = performance.now()
    let done = 0
    const onCase = () => {
      say(`This page replays the same cases here, in your browser: ${++done} of ${golden.length} …`)
      return new Promise((resolve) => setTimeout(resolve)) // so that the page shows it
    }
    const rows = await replay(ort, session, golden, manifest.parity.tolerance, { onCase })
    const failed = rows.filter((row) => !row.passed)
    const worst = Math.max(0, ...rows.map((row) => Number(row.of_limit)))
    const matched = `${rows.length - failed.length} of ${rows.length} outputs over ${golden.length} cases match here, in your browser`
    say(failed.length
      ? `Replayed: ${matched}. Not ${failed.map((row) => `${row.name} in case ${row.case}: ${row.problem}`).join('; ')}.`
      : `Replayed: ${matched} (onnxruntime-web ${live.version}, ${Math.round(performance.now() - begun)} ms; ` +
        `largest difference ${worst.toFixed(2)} of its limit). The hashes of model and cases are those of the manifest.`,
    failed.length ? 'bad' : 'good')
    window.replayed = rows
    return failed.length ? null : { ort, session, manifest }
  } catch (error) {
    say(`The replay failed: ${error.message ?? error}`, 'bad')
    return null
  }
}

const isWhole = (dtype) => /int/.test(dtype)
const oneLetterEach = (labels) => labels.every((label) => [...label].length <= 1 || /^[<[].*[>\]]$/.test(label))
const isSequence = (spec) => spec.shape.length === 2 && isWhole(spec.dtype)

/** The form: text for labelled sequences, a list for labelled ids, numbers else; what lengths count is filled in. */
export function showForm(page, running, form, answer) {
  const { manifest } = running
  const fields = new Map()
  for (const spec of manifest.inputs) {
    const field = fieldOf(spec, page)
    fields.set(spec.name, field)
    if (!field.hidden) form.append(field.element)
  }
  const button = make('button', { type: 'submit', textContent: 'Run' })
  form.append(button)
  let turn = 0
  const run = async () => {
    const mine = ++turn
    try {
      const arrays = readForm(manifest, fields, page)
      const feeds = Object.fromEntries(Object.entries(arrays).map(([name, array]) => [name, toTensor(running.ort, array)]))
      running.last = (running.last ?? Promise.resolve()).catch(() => {}).then(() => running.session.run(feeds))
      const outputs = await running.last
      if (mine === turn) answer.replaceChildren(...answersOf(manifest, arrays, outputs, page))
    } catch (error) {
      if (mine === turn) answer.replaceChildren(make('p', { className: 'error', textContent: String(error.message ?? error) }))
    }
    answer.dataset.turn = String(mine)
  }
  form.addEventListener('submit', (event) => { event.preventDefault(); run() })
  form.addEventListener('input', run)
  return run()
}

function fieldOf(spec, page) {
  const labels = page.labels[spec.name], first = page.first[spec.name]
  const labelled = (control, wide = false) =>
    make('label', { textContent: spec.name, className: wide ? 'wide' : '' }, control)
  if (labels && spec.shape.length === 1) {
    const order = labels.map((label, id) => [label, id]).sort(([a], [b]) => a.localeCompare(b))
    const select = make('select', { name: spec.name }, ...order.map(([label, id]) => make('option', { value: String(id), textContent: label })))
    select.value = String([first].flat()[0])
    return { element: labelled(select), read: () => [Number(select.value)] }
  }
  if (labels && isSequence(spec)) {
    const text = make('input', { name: spec.name, type: 'text', autocomplete: 'off', spellcheck: false, value: textOf([first].flat(2), labels, page.lengths[spec.name]) })
    return { element: labelled(text, true), read: () => [idsOf(text.value, labels, spec.name)] }
  }
  if (spec.counts) {
    return { hidden: true, counts: spec.counts }
  }
  if (spec.shape.length <= 1) {
    const number = make('input', { name: spec.name, type: spec.dtype === 'bool' ? 'checkbox' : 'number', step: isWhole(spec.dtype) ? '1' : 'any' })
    if (spec.dtype === 'bool') number.checked = Boolean([first].flat()[0])
    else number.value = String([first].flat()[0])
    return { element: labelled(number), read: () => [spec.dtype === 'bool' ? number.checked : number.value === '' ? NaN : Number(number.value)] }
  }
  const area = make('textarea', { name: spec.name, spellcheck: false, value: JSON.stringify(first) })
  return { element: labelled(area, true), read: () => {
    try {
      return JSON.parse(area.value)
    } catch {
      throw new Error(`${spec.name} must be nested lists of numbers, as in JSON`)
    }
  } }
}

function textOf(ids, labels, length) {
  const words = ids.slice(0, length ?? ids.length).map((id) => labels[id] ?? '')
  return words.join(oneLetterEach(labels) ? '' : ' ').trim()
}

/** The ids of a text: of its characters where labels are such, else of its words. */
function idsOf(text, labels, name) {
  const words = oneLetterEach(labels) ? [...text] : text.split(/\s+/).filter(Boolean)
  if (!words.length) throw new Error(`${name} is empty`)
  const unknown = labels.findIndex((label) => /^[<[]?unk(nown)?[>\]]?$/i.test(label))
  return words.map((word) => {
    const id = labels.indexOf(word)
    if (id < 0 && unknown < 0) throw new Error(`${name}: “${word}” is not among its labels`)
    return id < 0 ? unknown : id
  })
}

/** Arrays of one example by input name, checked against the manifest. */
function readForm(manifest, fields, page) {
  const sizes = {}, arrays = {}
  for (const spec of manifest.inputs) {
    const field = fields.get(spec.name)
    if (field.hidden) continue
    const value = field.read()
    const shape = shapeOf(value, spec.name)
    const wanted = `${spec.name} must have shape ${spec.shape.join(' × ') || '()'}`
    const given = spec.shape.length === 0 ? [] : shape
    if (given.length !== spec.shape.length) throw new Error(`${wanted}; it has ${given.length} axes`)
    spec.shape.forEach((size, axis) => {
      const known = typeof size === 'string' ? (sizes[size] ??= given[axis]) : size
      if (known !== given[axis]) throw new Error(`${wanted}, where ${size} is ${known}; it is ${given[axis]}`)
    })
    arrays[spec.name] = arrayOf(spec, given, [value].flat(Infinity))
  }
  for (const spec of manifest.inputs) {
    if (!spec.counts || arrays[spec.name]) continue
    const shape = spec.shape.map((size) => typeof size === 'string' ? sizes[size] ?? 1 : size)
    const count = shape.reduce((a, b) => a * b, 1)
    const full = sizes[spec.counts] ?? page.first[spec.name].flat(Infinity)[0]
    arrays[spec.name] = arrayOf(spec, shape, Array(count).fill(full))
  }
  return arrays
}

function shapeOf(value, name) {
  if (!Array.isArray(value)) return []
  const inner = value.map((each) => shapeOf(each, name))
  if (inner.some((shape) => String(shape) !== String(inner[0]))) throw new Error(`${name}: its lists differ in length`)
  return [value.length, ...(inner[0] ?? [])]
}

function arrayOf(spec, shape, given) {
  const holders = { float32: Float32Array, float64: Float64Array, bool: Uint8Array, int8: Int8Array, uint8: Uint8Array,
    int16: Int16Array, uint16: Uint16Array, int32: Int32Array, uint32: Uint32Array, int64: BigInt64Array, uint64: BigUint64Array }
  const wide = /64/.test(spec.dtype) && isWhole(spec.dtype)
  for (const number of given) {
    const fits = spec.dtype === 'bool' ? true : isWhole(spec.dtype) ? Number.isInteger(number) : typeof number === 'number' && !Number.isNaN(number)
    if (!fits) throw new Error(`${spec.name} must hold ${spec.dtype}`)
  }
  if (spec.dtype === 'float16') {
    if (!globalThis.Float16Array) throw new Error(`${spec.name} is float16, which this browser does not have`)
    return { dtype: spec.dtype, shape, data: new Uint16Array(globalThis.Float16Array.from(given).buffer) }
  }
  return { dtype: spec.dtype, shape, data: holders[spec.dtype].from(wide ? given.map(BigInt) : given.map(Number)) }
}

/** What a run gave: text for labelled outputs, maps of attention, and the first numbers of the rest. */
function answersOf(manifest, arrays, outputs, page) {
  const words = {}
  for (const spec of [...manifest.inputs, ...manifest.outputs]) {
    const labels = page.labels[spec.name]
    if (!labels) continue
    const array = withNumbers(arrays[spec.name] ?? fromTensor(outputs[spec.name]))
    const ids = /float/.test(spec.dtype) ? largest(array) : Array.from(array.data, Number)
    words[spec.name] = ids.map((id) => labels[id] ?? String(id))
  }
  const parts = []
  for (const spec of manifest.outputs) {
    const array = withNumbers(fromTensor(outputs[spec.name]))
    if (words[spec.name]) {
      const joined = words[spec.name].join(oneLetterEach(page.labels[spec.name]) ? '' : ' ')
      parts.unshift(make('p', { className: 'note', textContent: spec.name }), make('p', { className: 'answer', textContent: joined }))
    } else if (spec.weights_of) {
      const along = (axis) => {
        const found = [...manifest.inputs, ...manifest.outputs].find((each) => words[each.name] && each.shape[1] === axis)
        return found ? [words[found.name]] : null
      }
      const size = spec.shape.length
      const map = mapOf(spec, array.data, array.shape, size > 2 ? along(spec.shape[size - 2]) : null, along(spec.shape[size - 1]))
      parts.push(make('section', {}, make('h3', { textContent: `${spec.name}: weights of ${spec.weights_of}` }), exampleView(map, 0)))
    } else {
      const shown = Array.from(array.data.slice(0, 60), (x) => typeof x === 'bigint' ? String(x) : Number(x).toPrecision(6))
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
