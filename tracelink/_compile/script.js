'use strict';
// Opens what a link names, shows payloads when their buttons are pressed, and searches. Text is only ever set as text.
const INVISIBLE = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g;
const TOKENS = {
  py: /(?<comment>#[^\n]*)|(?<string>[rbfu]{0,2}(?:"""[^]*?"""|'''[^]*?'''|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'))|(?<keyword>\b(?:and|as|assert|async|await|break|class|continue|def|del|elif|else|except|finally|for|from|global|if|import|in|is|lambda|nonlocal|not|or|pass|raise|return|try|while|with|yield|None|True|False)\b)|(?<figure>\b\d[\w.]*)|(?<named>(?<=\b(?:def|class)\s+)\w+|@[\w.]+)/g,
  json: /(?<named>"(?:\\.|[^"\\\n])*"(?=\s*:))|(?<string>"(?:\\.|[^"\\\n])*")|(?<keyword>\b(?:true|false|null)\b)|(?<figure>-?\b\d[\w.+-]*)/g,
};

const escaped = (text) => text.replace(INVISIBLE, (char) => '\\u' + char.charCodeAt(0).toString(16).padStart(4, '0'));

async function unpacked(number) {
  const bytes = Uint8Array.from(atob(document.getElementById('p' + number).textContent), (char) => char.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('gzip'));
  return escaped(await new Response(stream).text());
}

function pretty(text, language) {
  if (language !== 'json') return text;
  try { return JSON.stringify(JSON.parse(text), null, 2).replace(/\\n/g, '\n    '); } catch { return text; }
}

function coloured(text, language) {
  const parts = document.createDocumentFragment();
  let done = 0;
  for (const match of TOKENS[language] ? text.matchAll(TOKENS[language]) : []) {
    const [kind] = Object.entries(match.groups).find(([, found]) => found !== undefined);
    const span = document.createElement('span');
    span.className = kind;
    span.textContent = match[0];
    parts.append(text.slice(done, match.index), span);
    done = match.index + match[0].length;
  }
  parts.append(text.slice(done));
  return parts;
}

async function toggle(button) {
  const item = button.closest('li');
  const shown = item.querySelector('pre');
  button.setAttribute('aria-expanded', String(!shown));
  if (shown) {
    item.querySelectorAll('pre, .cut').forEach((one) => one.remove());
    return;
  }
  const block = document.createElement('pre');
  block.tabIndex = 0;
  block.setAttribute('aria-label', button.textContent);
  item.append(block);
  const { payload, language, cut } = button.dataset;
  try {
    block.append(coloured(pretty(await unpacked(payload), language), language));
  } catch (error) {
    block.textContent = 'This browser cannot unpack it (' + error + '); tracelink compile --artifacts DIR writes it.';
  }
  if (cut) {
    const note = document.createElement('small');
    note.className = 'cut';
    note.textContent = cut;
    item.append(note);
  }
}

// Graphs before and after the passes of inductor and the generated code, side by side: lines that belong together are marked.

const NODE = /^\s+(\w+)(?:: "[^"]*")? = /;
const HANDLES = /# \[Provenance debug handles\] (.*)$/;
const AFTER_KERNEL = /^\s*(?:del |assert_|#|return|buf\d+ = (?:empty|reinterpret))/;

function keysOfGraph(lines, known) {
  return lines.map((line) => {
    const name = NODE.exec(line)?.[1];
    return name && Object.hasOwn(known, name) ? [name] : [];
  });
}

// Old versions do not mark calls: the name of the kernel does.
function calledIn(line, known) {
  const text = line.split('#')[0];
  return Object.keys(known).filter((key) => {
    const name = key.split(':')[0];
    const start = text.indexOf(name);
    return name && start >= 0 && !/\w/.test(text[start + name.length] ?? '');
  });
}

function keysOfCode(lines, known) {
  let current = [];
  let body = null;
  const marked = lines.some((line) => HANDLES.test(line));
  return lines.map((line) => {
    if (body) {
      const kernel = body;
      if (line.includes("''')")) body = null;
      return kernel;
    }
    const defined = /^(\w+) = async_compile/.exec(line)?.[1];
    if (defined) {
      current = [];
      body = Object.keys(known).filter((one) => one.split(':')[0] === defined);
      return body;
    }
    const handles = HANDLES.exec(line);
    if (handles) current = handles[1].split(',').map((one) => one.trim()).filter((one) => Object.hasOwn(known, one));
    else if (!marked) return calledIn(line, known);
    else if (AFTER_KERNEL.test(line) || !line.trim()) current = [];
    return current;
  });
}

function related(side, keys, map) {
  const all = (table, names) => names.flatMap((name) => (Object.hasOwn(table, name) ? table[name] : []));
  const post = side === 0 ? all(map.preToPost, keys) : side === 1 ? keys : all(map.cppCodeToPost, keys);
  return [side === 0 ? keys : all(map.postToPre, post), post, side === 2 ? keys : all(map.postToCppCode, post)].map((one) => new Set(one));
}

async function sideBySide(numbers) {
  const [mapping, ...texts] = await Promise.all(numbers.map(unpacked));
  const found = JSON.parse(mapping);
  const map = Object.fromEntries(['preToPost', 'postToPre', 'cppCodeToPost', 'postToCppCode'].map((name) => [name, found[name] ?? {}]));
  const view = document.createElement('div');
  view.className = 'sides';
  const sides = texts.map((text, side) => {
    const lines = text.split('\n');
    const keys = side === 2 ? keysOfCode(lines, map.cppCodeToPost) : keysOfGraph(lines, side ? map.postToPre : map.preToPost);
    const column = document.createElement('section');
    const title = document.createElement('h5');
    title.textContent = ['Before the passes', 'After the passes', 'Generated code'][side];
    const block = document.createElement('pre');
    block.tabIndex = 0;
    block.setAttribute('aria-label', title.textContent);
    const rows = lines.map((line, number) => {
      const row = document.createElement('span');
      row.className = 'row';
      row.append(coloured(line, 'py'), '\n');
      if (keys[number].length) Object.assign(row, { tabIndex: 0 }).classList.add('mapped');
      return row;
    });
    block.append(...rows);
    column.append(title, block);
    view.append(column);
    return { block, rows, keys };
  });
  let pinned = null;
  const mark = (side, number, scroll) => {
    const wanted = related(side, sides[side].keys[number], map);
    sides.forEach(({ block, rows, keys }, other) => {
      let first = null;
      rows.forEach((row, index) => {
        const on = keys[index].some((key) => wanted[other].has(key));
        row.classList.toggle('marked', on);
        if (on) first ??= row;
      });
      if (scroll && first && other !== side) block.scrollTop = first.offsetTop - block.offsetTop - block.clientHeight / 3;
    });
  };
  const clear = () => sides.forEach(({ rows }) => rows.forEach((row) => row.classList.remove('marked')));
  sides.forEach(({ rows, keys }, side) => rows.forEach((row, number) => {
    if (!keys[number].length) return;
    const pin = () => {
      pinned = pinned === row ? null : row;
      mark(side, number, true);
    };
    row.addEventListener('mouseenter', () => pinned || mark(side, number, false));
    row.addEventListener('mouseleave', () => pinned || clear());
    row.addEventListener('focus', () => pinned || mark(side, number, true));
    row.addEventListener('click', pin);
    row.addEventListener('keydown', (event) => {
      if (event.key === 'Enter' || event.key === ' ') { event.preventDefault(); pin(); }
      if (event.key === 'Escape') { pinned = null; clear(); }
    });
  }));
  return view;
}

async function toggleSides(button) {
  const item = button.closest('li');
  const shown = item.querySelector('.sides, .cut');
  button.setAttribute('aria-expanded', String(!shown));
  if (shown) return shown.remove();
  try {
    item.append(await sideBySide(button.dataset.provenance.split(' ')));
  } catch (error) {
    const note = document.createElement('small');
    note.className = 'cut';
    note.textContent = 'The mapping of these graphs cannot be read: ' + error;
    item.append(note);
  }
}

function follow() {
  let name = location.hash.slice(1);
  try { name = decodeURIComponent(name); } catch { return; }
  const target = name && document.getElementById(name);
  if (!target) return;
  target.hidden = false;
  for (let one = target; one; one = one.parentElement) if (one.tagName === 'DETAILS') one.open = true;
  target.scrollIntoView();
  target.querySelector(':scope > summary')?.focus({ preventScroll: true });
}

const search = document.getElementById('search');
const entries = [...document.querySelectorAll('.compilation')];
const texts = entries.map((one) => one.firstElementChild.textContent.toLowerCase());

function find() {
  const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
  let count = 0;
  entries.forEach((one, index) => {
    one.hidden = !words.every((word) => texts[index].includes(word));
    count += !one.hidden;
  });
  document.getElementById('found').textContent = words.length ? count + ' of ' + entries.length : '';
}

document.addEventListener('click', (event) => {
  const button = event.target.closest('button[data-payload]');
  if (button) toggle(button);
  const sides = event.target.closest('button[data-provenance]');
  if (sides) toggleSides(sides);
  const link = event.target.closest('a[href^="#"]');
  if (link && link.hash === location.hash) follow();
});
document.addEventListener('keydown', (event) => {
  if (event.key === '/' && event.target !== search) {
    event.preventDefault();
    search.focus();
  } else if (event.key === 'Escape' && event.target === search) {
    search.value = '';
    find();
  }
});
search.addEventListener('input', find);
addEventListener('hashchange', follow);
follow();
