'use strict';
{
// Sorts and filters tables, and shows the command for the place of a row. Text is only ever set as text.
const collator = new Intl.Collator(undefined, { numeric: true });

function valueOf(row, column) {
  const cell = row.children[column];
  return cell.dataset.value === undefined ? cell.textContent : Number(cell.dataset.value);
}

function compare(one, other) {
  if (typeof one === 'number' && typeof other === 'number') return one - other;
  if (one === '' || other === '') return one === other ? 0 : one === '' ? 1 : -1;
  return collator.compare(String(one), String(other));
}

function sort(header) {
  const table = header.closest('table');
  const column = header.cellIndex;
  const descending = header.getAttribute('aria-sort') !== 'descending';
  table.querySelectorAll('th[aria-sort]').forEach((other) => other.removeAttribute('aria-sort'));
  header.setAttribute('aria-sort', descending ? 'descending' : 'ascending');
  const sign = descending ? -1 : 1;
  const rows = [...table.tBodies[0].rows].map((row) => [valueOf(row, column), row]);
  rows.sort(([one], [other]) => sign * compare(one, other));
  table.tBodies[0].append(...rows.map(([, row]) => row));
}

function filter(field) {
  const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
  const frame = field.closest('label').nextElementSibling;
  for (const row of frame.querySelector('tbody').rows) {
    const text = row.textContent.toLowerCase();
    row.hidden = !words.every((word) => text.includes(word));
  }
}

async function show(button) {
  const place = document.getElementById('place');
  place.hidden = false;
  place.querySelector('code').textContent = button.dataset.command;
  const range = document.createRange();
  range.selectNodeContents(place.querySelector('code'));
  getSelection().removeAllRanges();
  getSelection().addRange(range);
  let copied = false;
  try {
    await navigator.clipboard.writeText(button.dataset.command);
    copied = true;
  } catch { /* not allowed here: the command is selected */ }
  place.querySelector('small').textContent = copied ? 'copied' : 'selected: copy it';
}

document.querySelectorAll('.filtering').forEach((label) => { label.hidden = false; });
document.addEventListener('input', (event) => {
  if (event.target.matches('.filter')) filter(event.target);
});
document.addEventListener('click', (event) => {
  const header = event.target.closest('table.sortable thead th');
  if (header && event.target.closest('button')) sort(header);
  const button = event.target.closest('button.place');
  if (button) show(button);
});
}
