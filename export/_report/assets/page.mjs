// What a page does once it is read.
import { showCases } from './maps.mjs'

export const page = JSON.parse(document.getElementById('data').textContent)
const maps = document.getElementById('maps')
if (maps) await showCases(page.cases, maps)
