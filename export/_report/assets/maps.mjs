// Heat maps of attention weights: a canvas a head, with hover, arrow keys, and the same numbers as a table.

const NOT_A_NUMBER = 65534
const EXACT_ZERO = 65535
const LARGEST_TABLE = 64 * 64
const MOST_POSITIONS = 128 // of queries, and of keys, that are drawn: maps.py

/** The bytes of compressed base64 text. */
export async function unpacked(text) {
  const letters = atob(text), bytes = new Uint8Array(letters.length) // `Uint8Array.from` takes 100 MiB to make 5
  for (let i = 0; i < letters.length; i++) bytes[i] = letters.charCodeAt(i)
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('gzip'))
  return new Response(stream).arrayBuffer()
}

/** A map of the page's data with its numbers: weights as floats, an exact zero as -0, so that both can be told. */
export async function readMap(packed) {
  const codes = new Uint16Array(await unpacked(packed.weights))
  const weights = Float64Array.from(codes, (code) =>
    code === EXACT_ZERO ? -0 : code === NOT_A_NUMBER ? NaN : code / packed.scale)
  return { ...packed, weights, entropy: new Float32Array(await unpacked(packed.entropy)) }
}

/** A map of what a model gave in this page: weights as numbers of shape (examples, heads, Tq, Tk). */
export function mapOf(spec, weights, shape, queries, keys) {
  const four = shape.length === 2 ? [shape[0], 1, 1, shape[1]]
    : shape.length === 3 ? [shape[0], 1, shape[1], shape[2]]
    : [shape.slice(0, -3).reduce((a, b) => a * b, 1), ...shape.slice(-3)]
  const [examples, heads, rows, columns] = four
  const cut = [examples, heads, Math.min(rows, MOST_POSITIONS), Math.min(columns, MOST_POSITIONS)]
  const marked = new Float64Array(cut.reduce((a, b) => a * b, 1))
  const entropy = new Float32Array(examples * heads * cut[2])
  for (let map = 0; map < examples * heads; map++) {
    for (let row = 0; row < cut[2]; row++) {
      const start = (map * rows + row) * columns
      const whole = Array.from(weights.slice(start, start + columns), Number)
      entropy[map * cut[2] + row] = entropyOf(whole)
      whole.slice(0, cut[3]).forEach((weight, column) => {
        marked[(map * cut[2] + row) * cut[3] + column] = weight === 0 ? -0 : weight
      })
    }
  }
  return { output: spec.name, layer: spec.weights_of, shape: cut, of: four, weights: marked, entropy, queries, keys }
}

function entropyOf(row) {
  const sum = row.reduce((a, b) => a + (b || 0), 0)
  return row.reduce((total, w) => w > 0 && sum > 0 ? total - (w / sum) * Math.log(w / sum) : total, 0)
}

const isZero = (weight) => Object.is(weight, -0)
const named = (kind, index, label) => `${kind} ${index}` + (label === undefined ? '' : ` “${label}”`)
export const make = (tag, properties = {}, ...children) => {
  const made = Object.assign(document.createElement(tag), properties)
  made.append(...children)
  return made
}

/** The maps of one example: its heads side by side, below them what the cell in question holds. */
export function exampleView(map, example) {
  const [, heads, rows, columns] = map.shape
  const said = make('output', { textContent: '\u00a0' })
  said.setAttribute('aria-live', 'polite')
  const start = example * heads * rows * columns
  const all = map.weights.subarray(start, start + heads * rows * columns)
  const top = all.reduce((a, b) => b > a ? b : a, 0)
  const figures = make('div', { className: 'heads' })
  for (let head = 0; head < heads; head++) {
    const at = (row, column) => all[(head * rows + row) * columns + column]
    const entropy = (row) => map.entropy[(example * heads + head) * rows + row]
    const labels = { queries: map.queries?.[example] ?? [], keys: map.keys?.[example] ?? [] }
    const title = heads > 1 ? `head ${head}` : `${rows} × ${columns}`
    const tell = (row, column) => {
      const weight = at(row, column)
      const held = isZero(weight) ? 'exactly 0' : Number.isNaN(weight) ? 'not a number' : `weight ${weight.toFixed(4)}`
      said.textContent = (heads > 1 ? `${title}, ` : '') + `${named('query', row, labels.queries[row])}, ` +
        `${named('key', column, labels.keys[column])}: ${held}; entropy of the row ${entropy(row).toFixed(3)}, ` +
        `that of ${Math.exp(entropy(row)).toFixed(1)} equal keys`
    }
    const shownHead = { rows, columns, at, entropy, labels, top, title, tell, name: `${map.output} of ${map.layer}, ${title}` }
    figures.append(make('figure', {}, make('figcaption', { textContent: title }), canvasOf(shownHead), tableOf(shownHead)))
  }
  const whole = map.of
  const isCut = map.shape.some((size, axis) => axis > 0 && size < whole[axis])
  const note = isCut ? `The first ${heads} of ${whole[1]} heads, ${rows} of ${whole[2]} queries, ${columns} of ${whole[3]} keys. ` : ''
  return make('div', {}, figures, said, make('p', { className: 'note', textContent: `${note}The largest weight of these maps is ${top.toFixed(4)}.` }))
}

/** A focusable canvas that draws itself in the colours of the page, and again when these change. */
function canvasOf(head) {
  const canvas = make('canvas')
  canvas.setAttribute('aria-hidden', 'true')
  const frame = make('div', { className: 'map', tabIndex: 0 }, canvas)
  frame.setAttribute('role', 'application')
  frame.setAttribute('aria-roledescription', 'heat map')
  frame.setAttribute('aria-label', `${head.name}: ${head.rows} queries by ${head.columns} keys; arrow keys move`)
  const long = Math.max(0, ...head.labels.keys.map((label) => label.length))
  const wide = Math.max(0, ...head.labels.queries.map((label) => label.length))
  const cell = Math.max(6, Math.min(22, Math.floor(640 / Math.max(head.columns, 1)), Math.floor(640 / Math.max(head.rows, 1))))
  const letters = cell >= 11
  const left = letters && wide ? Math.min(110, 10 + 8 * wide) : 4
  const above = letters && long ? (long > 2 ? Math.min(90, 10 + 6 * long) : 18) : 4
  const bar = 44
  const width = left + head.columns * cell + 8 + bar
  const height = above + head.rows * cell + 4
  let cursor = null

  const draw = () => {
    const styles = getComputedStyle(document.documentElement)
    const colour = (name) => styles.getPropertyValue(name).trim()
    const parts = (name) => [1, 3, 5].map((from) => parseInt(colour(name).slice(from, from + 2), 16))
    const [paper, hot] = [parts('--paper'), parts('--hot')]
    const ratio = window.devicePixelRatio || 1
    canvas.width = Math.round(width * ratio)
    canvas.height = Math.round(height * ratio)
    canvas.style.width = `${width}px`
    canvas.style.height = `${height}px`
    const pen = canvas.getContext('2d')
    pen.scale(ratio, ratio)
    pen.font = `${Math.min(13, cell - 1)}px system-ui, sans-serif`
    pen.textBaseline = 'middle'
    for (let row = 0; row < head.rows; row++) {
      for (let column = 0; column < head.columns; column++) {
        const weight = head.at(row, column), x = left + column * cell, y = above + row * cell
        if (isZero(weight) || Number.isNaN(weight)) {
          pen.strokeStyle = Number.isNaN(weight) ? colour('--bad') : colour('--hatch')
          pen.beginPath()
          pen.moveTo(x, y + cell)
          pen.lineTo(x + cell, y)
          if (cell >= 10) {
            pen.moveTo(x, y + cell / 2)
            pen.lineTo(x + cell / 2, y)
            pen.moveTo(x + cell / 2, y + cell)
            pen.lineTo(x + cell, y + cell / 2)
          }
          pen.stroke()
          continue
        }
        const share = head.top > 0 ? weight / head.top : 0
        pen.fillStyle = `rgb(${paper.map((from, i) => Math.round(from + (hot[i] - from) * share)).join(' ')})`
        pen.fillRect(x, y, cell, cell)
      }
    }
    pen.strokeStyle = colour('--line')
    pen.strokeRect(left - 0.5, above - 0.5, head.columns * cell + 1, head.rows * cell + 1)
    pen.fillStyle = colour('--bar')
    const most = Math.log(Math.max(2, head.columns))
    for (let row = 0; row < head.rows; row++) {
      const share = Math.min(1, head.entropy(row) / most)
      pen.fillRect(left + head.columns * cell + 8, above + row * cell + cell / 4, bar * share, cell / 2)
    }
    pen.fillStyle = colour('--ink')
    if (letters) {
      pen.textAlign = 'right'
      head.labels.queries.slice(0, head.rows).forEach((label, row) => pen.fillText(shown(label, 14), left - 5, above + (row + 0.5) * cell))
      head.labels.keys.slice(0, head.columns).forEach((label, column) => {
        pen.save()
        pen.translate(left + (column + 0.5) * cell, above - 4)
        if (long > 2) pen.rotate(-Math.PI / 3)
        pen.textAlign = long > 2 ? 'left' : 'center'
        pen.textBaseline = long > 2 ? 'middle' : 'bottom'
        pen.fillText(shown(label, 16), 0, 0)
        pen.restore()
      })
    }
    if (cursor !== null) {
      pen.lineWidth = 2
      pen.strokeStyle = colour('--accent')
      pen.strokeRect(left + cursor[1] * cell + 1, above + cursor[0] * cell + 1, cell - 2, cell - 2)
    }
  }
  const move = (row, column) => {
    if (row < 0 || column < 0 || row >= head.rows || column >= head.columns) return
    cursor = [row, column]
    head.tell(row, column)
    draw()
  }
  canvas.addEventListener('mousemove', (event) => {
    const box = canvas.getBoundingClientRect()
    move(Math.floor((event.clientY - box.top - above) / cell), Math.floor((event.clientX - box.left - left) / cell))
  })
  frame.addEventListener('focus', () => move(...(cursor ?? [0, 0])))
  frame.addEventListener('keydown', (event) => {
    const [row, column] = cursor ?? [0, 0]
    const to = {
      ArrowLeft: [row, column - 1], ArrowRight: [row, column + 1], ArrowUp: [row - 1, column], ArrowDown: [row + 1, column],
      Home: [row, 0], End: [row, head.columns - 1],
    }[event.key]
    if (!to) return
    event.preventDefault()
    move(...to)
  })
  draw()
  canvas.redraw = draw
  return frame
}

matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => {
  for (const canvas of document.querySelectorAll('canvas')) canvas.redraw?.()
})

const shown = (label, most) => label.length > most ? `${label.slice(0, most - 1)}…` : label === ' ' ? '␣' : label

/** The numbers of a head as a table, made when it is opened. */
function tableOf(head) {
  if (head.rows * head.columns > LARGEST_TABLE) return ''
  const details = make('details', {}, make('summary', { textContent: 'The numbers' }))
  details.addEventListener('toggle', () => {
    if (details.children.length > 1) return
    const label = (labels, index) => labels[index] === undefined ? String(index) : `${index} ${shown(labels[index], 16)}`
    const headings = Array.from({ length: head.columns }, (_, column) =>
      Object.assign(make('th', { textContent: label(head.labels.keys, column) }), { scope: 'col' }))
    const body = make('tbody')
    for (let row = 0; row < head.rows; row++) {
      const line = make('tr', {}, Object.assign(make('th', { textContent: label(head.labels.queries, row) }), { scope: 'row' }))
      for (let column = 0; column < head.columns; column++) {
        const weight = head.at(row, column)
        line.append(make('td', { className: 'number', textContent: isZero(weight) ? 'exactly 0' : weight.toFixed(4) }))
      }
      line.append(make('td', { className: 'number', textContent: head.entropy(row).toFixed(3) }))
      body.append(line)
    }
    const first = make('tr', {}, make('td', { textContent: 'query' }), ...headings,
      Object.assign(make('th', { textContent: 'entropy' }), { scope: 'col' }))
    const scroll = make('div', { className: 'scroll', tabIndex: 0 }, make('table', {}, make('thead', {}, first), body))
    scroll.setAttribute('role', 'region')
    scroll.setAttribute('aria-label', `Numbers of ${head.name}`)
    details.append(scroll)
  })
  return details
}

/** The section of golden cases: which case, which example, and its maps. */
export function showCases(cases, place) {
  if (!cases.length) return
  const choice = (text, options) => {
    const select = make('select', {}, ...options.map((option, value) => make('option', { value: String(value), textContent: option })))
    return [make('label', { textContent: text }, select), select]
  }
  const [caseLabel, caseSelect] = choice('Case', cases.map((each) => each.name))
  const [exampleLabel, exampleSelect] = choice('Example', [])
  const views = make('div')
  let turn = 0
  const showExample = async () => {
    const one = cases[Number(caseSelect.value)], example = Number(exampleSelect.value), mine = ++turn
    const maps = await Promise.all(one.maps.map(readMap))
    if (mine !== turn) return // another was chosen meanwhile
    const caption = make('p', { className: 'caption' })
    for (const [name, text] of one.captions[example] ?? []) {
      caption.append(make('b', { textContent: `${name}: ` }), `${text}  `)
    }
    const drawn = maps.filter((map) => example < map.shape[0]).map((map) =>
      make('section', {}, make('h3', { textContent: `${map.output}: weights of ${map.layer}` }), exampleView(map, example)))
    views.replaceChildren(caption, ...drawn)
    views.dataset.shown = `${caseSelect.value}/${example}`
  }
  const showCase = () => {
    const one = cases[Number(caseSelect.value)]
    const most = Math.max(...one.maps.map((map) => map.shape[0]))
    exampleSelect.replaceChildren(...Array.from({ length: most }, (_, example) => {
      const text = one.captions[example]?.map(([, words]) => words).join(' · ')
      return make('option', { value: String(example), textContent: text ? `${example}: ${shown(text, 60)}` : String(example) })
    }))
    return showExample()
  }
  caseSelect.addEventListener('change', showCase)
  exampleSelect.addEventListener('change', showExample)
  place.replaceChildren(make('div', { className: 'choices' }, caseLabel, exampleLabel), views)
  return showCase()
}
