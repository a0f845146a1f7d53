// The attention maps of the examples of a page, which are drawn when they are opened.
import { heatmaps, unpacked } from './heatmaps.mjs'

export const page = JSON.parse(document.getElementById('data').textContent)

async function drawMaps(details) {
  if (details.dataset.drawn || !details.open) return
  details.dataset.drawn = 'true'
  for (const map of page.maps[Number(details.dataset.example)]) {
    const weights = JSON.parse(new TextDecoder().decode(await unpacked(map.weights)))
    details.append(heatmaps({ ...map, weights }))
  }
}

for (const details of document.querySelectorAll('details.maps')) {
  details.addEventListener('toggle', () => drawMaps(details))
  drawMaps(details)
}
