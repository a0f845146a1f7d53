// Heat maps of attention weights: a canvas for each head, the weight below the pointer, and the numbers as a table.

const MAX_HEADS = 16 // limits of attention_maps.py
const MAX_POSITIONS = 128 // of queries, and of keys
const WIDTH = 640 // CSS pixels of a map, unless its cells would be too small or too large
const CELL = { least: 5, most: 22, labelled: 11 }
const [PAPER, HOT, NOT_A_NUMBER] = [[255, 255, 255], [8, 48, 107], [179, 38, 30]] // inverted by the style if it is dark

/** Return the bytes of compressed base64 text. */
export async function unpacked(text) {
  const letters = atob(text)
  const bytes = new Uint8Array(letters.length) // `Uint8Array.from` takes 100 MiB to make 5
  for (let index = 0; index < letters.length; index++) bytes[index] = letters.charCodeAt(index)
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('gzip'))
  return new Uint8Array(await new Response(stream).arrayBuffer())
}

/** Return an element with properties and children. */
export function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties)
  element.append(...children)
  return element
}

/** Return a region that scrolls if its element is wider than the window. */
export function scrolling(element, label) {
  return make('div', { className: 'scroll', tabIndex: 0, role: 'region', ariaLabel: label }, element)
}

/**
 * Return a section with the maps of one output of one example.
 *
 * A map is {output, layer, shape, of, weights, queries, keys}: `weights` are the numbers of `shape` (heads, queries,
 * keys), a part of the shape `of`; `queries` and `keys` are labels, or null.
 */
export function heatmaps(map) {
  const [, queryCount, keyCount] = map.shape
  const limits = [MAX_HEADS, MAX_POSITIONS, MAX_POSITIONS]
  const [heads, rows, columns] = map.shape.map((size, axis) => Math.min(size, limits[axis]))
  const weightAt = (head, row, column) => map.weights[(head * queryCount + row) * keyCount + column]
  const indices = { heads, rows, columns }
  const top = largest(indices, weightAt)
  const readout = make('p', { className: 'readout', textContent: 'Point at a cell to read its weight.' })
  const figures = make('div', { className: 'heads' })
  for (let head = 0; head < heads; head++) {
    const title = heads > 1 ? `head ${head}` : `${rows} queries × ${columns} keys`
    const show = (row, column) => {
      const position = `query ${named(row, map.queries)}, key ${named(column, map.keys)}`
      readout.textContent = `${heads > 1 ? `${title}, ` : ''}${position}: ${weightText(weightAt(head, row, column))}`
    }
    const at = (row, column) => weightAt(head, row, column)
    const { output, queries, keys } = map
    const one = { rows, columns, top, title: `${output}, ${title}`, queries, keys, at }
    figures.append(make('figure', {}, make('figcaption', { textContent: title }), mapOf(one, show), tableOf(one)))
  }
  const cut = [heads, rows, columns].some((size, axis) => size < map.of[axis])
  const note = cut
    ? `The first ${heads} of ${map.of[0]} heads, ${rows} of ${map.of[1]} queries, ${columns} of ${map.of[2]} keys. `
    : ''
  return make('section', { className: 'map-section' },
    make('h4', { textContent: `${map.output}: weights of ${map.layer}` }), figures, readout,
    make('p', { className: 'note', textContent: `${note}The strongest colour is ${weightText(top)}.` }))
}

function largest({ heads, rows, columns }, weightAt) {
  let top = 0
  for (let head = 0; head < heads; head++) {
    for (let row = 0; row < rows; row++) {
      for (let column = 0; column < columns; column++) top = Math.max(top, weightAt(head, row, column) || 0)
    }
  }
  return top
}

/** Return a number with some significant digits. */
export const numberText = (value, digits) => String(Number(value.toPrecision(digits)))

const isNumber = (weight) => Number.isFinite(weight) // JSON has null for NaN
const weightText = (weight) => !isNumber(weight) ? 'NaN' : weight === 0 ? 'exactly 0' : numberText(weight, 3)
const named = (index, labels) => labels?.[index] === undefined ? String(index) : `${index} “${labels[index]}”`

/** Return a canvas with one pixel for each weight, enlarged by the style, and the labels beside it. */
function mapOf(head, show) {
  const { rows, columns } = head
  const cell = Math.max(CELL.least, Math.min(CELL.most, Math.floor(WIDTH / Math.max(rows, columns, 1))))
  const ariaLabel = `${head.title}: heat map; the numbers are in the table below`
  const canvas = make('canvas', { width: columns, height: rows, role: 'img', ariaLabel })
  canvas.style.width = `${columns * cell}px`
  canvas.style.height = `${rows * cell}px`
  draw(canvas, head)
  const showCell = ({ offsetX, offsetY }) => {
    const [row, column] = [Math.floor(offsetY / cell), Math.floor(offsetX / cell)]
    if (row >= 0 && column >= 0 && row < rows && column < columns) show(row, column)
  }
  canvas.addEventListener('pointermove', showCell)
  canvas.addEventListener('pointerdown', showCell) // a finger does not move
  const hasLabels = cell >= CELL.labelled
  const keys = labelsOf(hasLabels ? head.keys?.slice(0, columns) : null, 'keys', cell)
  const queries = labelsOf(hasLabels ? head.queries?.slice(0, rows) : null, 'queries', cell)
  return scrolling(make('div', { className: 'map' }, keys, queries, canvas), head.title)
}

function draw(canvas, { rows, columns, at, top }) {
  if (!rows || !columns) return
  const pen = canvas.getContext('2d')
  const image = pen.createImageData(columns, rows)
  for (let index = 0; index < rows * columns; index++) {
    const weight = at(Math.floor(index / columns), index % columns)
    if (weight === 0) continue // transparent: the style hatches what is behind the canvas
    const share = Math.max(0, weight) / (top || 1)
    const colour = isNumber(weight) ? PAPER.map((from, part) => from + (HOT[part] - from) * share) : NOT_A_NUMBER
    image.data.set([...colour, 255], 4 * index)
  }
  pen.putImageData(image, 0, 0)
}

function labelsOf(labels, className, cell) {
  const isLong = labels?.some((label) => [...label].length > 2)
  const list = make('div', { className: isLong ? `${className} long` : className, ariaHidden: 'true' })
  list.style.setProperty('--cell', `${cell}px`)
  const visible = (label) => label === ' ' ? '␣' : label
  list.append(...(labels ?? []).map((label) => make('span', { textContent: visible(label), title: label })))
  return list
}

/** Return the numbers of a head as a table, which is made when it is opened. */
function tableOf(head) {
  const details = make('details', {}, make('summary', { textContent: 'The numbers' }))
  const heading = (text, scope) => make('th', { textContent: text, scope })
  const label = (index, labels) => [index, ...(labels?.slice(index, index + 1) ?? [])].join(' ')
  details.addEventListener('toggle', () => {
    if (details.children.length > 1) return
    const columns = Array.from({ length: head.columns }, (_, column) => column)
    const cell = (row, column) => make('td', { className: 'number', textContent: weightText(head.at(row, column)) })
    const rows = Array.from({ length: head.rows }, (_, row) =>
      make('tr', {}, heading(label(row, head.queries), 'row'), ...columns.map((column) => cell(row, column))))
    const first = make('tr', {}, make('td', { textContent: 'query' }),
      ...columns.map((column) => heading(label(column, head.keys), 'col')))
    const table = make('table', {}, make('thead', {}, first), make('tbody', {}, ...rows))
    details.append(scrolling(table, `Numbers of ${head.title}`))
  })
  return details
}
