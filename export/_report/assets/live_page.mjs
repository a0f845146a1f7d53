// What a live page does besides.
import { replayHere, showForm } from './live.mjs'

const running = await replayHere(page.live, document.getElementById('replay'))
const form = document.getElementById('form')
if (running) await showForm(page, running, form, document.getElementById('answer'))
else form.replaceChildren(make('p', { className: 'error', textContent: 'The model is not run here, since its replay failed.' }))
