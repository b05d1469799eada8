// The status page: asks /api/ and shows the answers. Text from the daemon becomes text nodes, never HTML.
'use strict'

const REFRESH_MS = 2000
const POINTS = 3600000 / REFRESH_MS // of the curves of a filter, which the page draws by itself: an hour
const HISTORY_MS = 10000
const CERTIFICATE_DAYS = 14 // before its end
const CLIENTS = 100 // in the table, as the next
const COMMANDS = 20
const PATIENCE_MS = 5000 // without an answer; then the age of what is shown is told
const main = document.getElementById('main')
let past = { points: [], askedMs: 0 } // the daemon's last hour
let filterPoints = { key: null, fill: [], rate: [] }
let shown = 0 // counts views: answers to an earlier one are dropped
let timer = 0
let askedMs = 0 // since when an answer has been awaited; 0: none is
let answeredMs = 0 // when the last one came

// ---- elements ----

function el(tag, props, ...children) {
  const node = document.createElement(tag)
  for (const [name, value] of Object.entries(props || {})) {
    if (name === 'class') node.className = value
    else if (name.startsWith('on')) node.addEventListener(name.slice(2), value)
    else if (value !== false && value != null) node.setAttribute(name, value === true ? '' : value)
  }
  for (const child of children.flat()) if (child != null) node.append(child)
  return node
}

function card(title, ...children) {
  return el('section', { class: 'card' }, el('h2', {}, title), ...children)
}

function list(rows) {
  const dl = el('dl')
  for (const row of rows) if (row) dl.append(el('dt', {}, row[0]), el('dd', { class: row[2] || '' }, row[1]))
  return dl
}

function bar(share, level) {
  const fill = el('i')
  fill.style.width = Math.max(0, Math.min(100, share * 100)) + '%'
  return el('span', { class: 'bar ' + (level || ''), title: percent(share) }, fill)
}

// Points that are null are gaps. `room`: for so many points.
function spark(points, label, room) {
  const ns = 'http://www.w3.org/2000/svg'
  const svg = document.createElementNS(ns, 'svg')
  const path = document.createElementNS(ns, 'path')
  const known = points.filter((value) => value != null)
  const most = Math.max(1e-9, ...known), width = Math.max(2, room, points.length) - 1
  const low = label === 'fill' ? Math.min(...known, most) : 0
  const y = (value) => 29 - (28 * (value - low)) / Math.max(1e-9, most - low)
  let begins = true
  const line = points.map((value, i) => {
    const step = value == null ? '' : (begins ? 'M' : 'L') + (width + 1 - points.length + i) + ' ' + y(value).toFixed(2)
    begins = value == null
    return step
  })
  svg.setAttribute('viewBox', `0 0 ${width} 30`)
  svg.setAttribute('preserveAspectRatio', 'none')
  svg.setAttribute('class', 'spark')
  svg.setAttribute('role', 'img')
  svg.setAttribute('aria-label', label)
  path.setAttribute('d', line.join(''))
  svg.append(path)
  return svg
}

function push(points, value) {
  points.push(value)
  if (points.length > POINTS) points.shift()
}

// ---- numbers ----

const plain = new Intl.NumberFormat('en', { maximumFractionDigits: 1 })
const short = new Intl.NumberFormat('en', { notation: 'compact', maximumFractionDigits: 1 })
const number = (n) => plain.format(n)
const compact = (n) => (n < 10000 ? plain : short).format(n)

function bytes(n) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB']
  let unit = 0
  for (; n >= 1024 && unit < units.length - 1; unit++) n /= 1024
  return (unit ? n.toFixed(n < 10 ? 1 : 0) : Math.round(n)) + '\u00a0' + units[unit]
}

function percent(share) {
  return (share * 100).toFixed(share < 0.1 ? 1 : 0) + ' %'
}

function rate(value) {
  return value == null ? '–' : value === 0 ? '0' : value.toPrecision(2)
}

function duration(ms) {
  const s = Math.round(ms / 1000)
  if (s < 60) return s + ' s'
  if (s < 3600) return Math.floor(s / 60) + ' min'
  if (s < 86400) return Math.floor(s / 3600) + ' h ' + Math.floor((s % 3600) / 60) + ' min'
  return Math.floor(s / 86400) + ' d ' + Math.floor((s % 86400) / 3600) + ' h'
}

function micros(us) {
  return us == null ? '–' : us < 1000 ? us.toPrecision(3) + ' µs' : us < 1e6 ? (us / 1000).toPrecision(3) + ' ms' : (us / 1e6).toPrecision(3) + ' s'
}

const when = (unix) => new Date(unix * 1000).toISOString().replace('T', ' ').slice(0, 19) + ' UTC'
const overLevel = (share) => (share > 1 ? 'bad' : '')
const fillLevel = (row) => (!row.fixed && !row.forgets ? overLevel(row.fill) : row.fill > 1 || (row.fixed && row.fill === 1) ? 'bad' : row.fill >= 0.9 ? 'warn' : '') // others grow
const rateLevel = (row) => (row.rate > row.asked ? 'bad' : row.rate > 0.9 * row.asked ? 'warn' : '')

// "a=1 b=2" as { a, b }.
const pairs = (line, between) => Object.fromEntries(line.split(between).map((word) => [word.slice(0, word.indexOf('=')), word.slice(word.indexOf('=') + 1)]))

// ---- asking ----

// The daemon's answer that it has none for this question.
class Refusal extends Error {}

// Of the origin, since a page's address may have a password, which fetch() refuses.
async function reply(path) {
  const reply = await fetch(new URL(path, location.origin), { cache: 'no-store', signal: AbortSignal.timeout(15000) })
  if (!reply.ok) throw new Refusal((await reply.text()).trim() || 'status ' + reply.status)
  return reply
}

const ask = async (path) => (await reply(path)).json()

// The reply of a command, in RESP3.
async function run(path) {
  const bytes = new Uint8Array(await (await reply(path)).arrayBuffer()), utf8 = new TextDecoder()
  let at = 0
  const take = (end, skip) => { const text = utf8.decode(bytes.subarray(at, end)); at = end + skip; return text }
  const value = () => {
    const head = take(bytes.indexOf(13, at), 2), n = Number(head.slice(1))
    if (head[0] === '$') return take(at + n, 2)
    if (head[0] === '*') return Array.from({ length: n }, value)
    if (head[0] === '%') return Object.fromEntries(Array.from({ length: n }, () => [value(), value()]))
    if (head[0] === '-') throw new Refusal(head.slice(1))
    return n
  }
  return value()
}

function setState(things) {
  const state = document.getElementById('state')
  state.replaceChildren(...things.flatMap(({ text, level, link }, i) => [i ? ' · ' : '', el(link ? 'a' : 'span', { href: link, class: level }, text)]))
  state.className = 'state ' + things[0].level
}

// All that needs somebody, the gravest first.
function troubles(now) {
  const f = now.facts, days = Math.floor((f.tls_certificate_expires_seconds * 1000 - now.nowMs) / 86400000), all = []
  const note = (holds, level, text, link) => holds && all.push({ text, level, link })
  note(!f.ready, 'bad', now.state)
  note(f.memory_refusing, 'bad', 'memory is full: adds are refused', '#/')
  note(!f.save_last_ok, 'bad', 'the last save failed', '#/')
  note(f.tls_certificate_expires_seconds && days < 0, 'bad', 'the certificate has expired', '#/')
  note(f.clients >= f.clients_max, 'bad', 'maxclients is reached: new clients are refused', '#/clients')
  note(f.filters_quarantined, 'warn', number(f.filters_quarantined) + ' quarantined', '#/filters?quarantined=yes')
  note(f.sstable_directories_unreachable, 'warn', number(f.sstable_directories_unreachable) + ' of sstable-dir cannot be read', '#/')
  note(f.sstable_filters_broken, 'warn', number(f.sstable_filters_broken) + ' filters of SSTables cannot be read', '#/filters?quarantined=yes')
  note(f.tls_certificate_expires_seconds && days >= 0 && days < CERTIFICATE_DAYS, 'warn', `the certificate expires in ${days} days`, '#/')
  return all
}

function showState(now) {
  const things = troubles(now), place = `${now.host}:${now.port}`
  setState(things.length ? things : [{ text: 'ready', level: 'good' }])
  document.getElementById('place').textContent = place
  document.title = (things.length ? things[0].text + (things.length > 1 ? ` (and ${things.length - 1} more)` : '') + ' – ' : '') + place + ' – Bloomery'
  document.getElementById('about').textContent = `bloomeryd ${now.version}, up ${duration(now.uptimeMs)}`
}

function showSilence(reason) {
  const age = answeredMs ? `; what is shown is ${duration(Date.now() - answeredMs)} old` : ''
  setState([{ text: reason + age, level: 'bad' }])
  document.title = 'no answer – Bloomery'
  main.classList.add('stale')
}

// At most one question for each point.
async function history(nowMs) {
  if (nowMs - past.askedMs >= HISTORY_MS) past = { points: (await ask('/api/history')).points, askedMs: nowMs }
  return past.points
}

// ---- overview ----

// INFO's lines "kind_name:a=1,b=2" of a kind, as { name, a, b }.
function lines(info, kind) {
  return info.split('\r\n').filter((line) => line.startsWith(kind)).map((line) => {
    const end = line.indexOf(':', kind.length)
    return { name: line.slice(kind.length, end), ...pairs(line.slice(end + 1), ',') }
  })
}

function commandTable(info) {
  const times = Object.fromEntries(lines(info, 'latency_percentiles_usec_').map((each) => [each.name, each]))
  const rows = lines(info, 'cmdstat_').sort((a, b) => b.calls - a.calls).slice(0, COMMANDS)
  const head = el('tr', {}, ...['command', 'calls', 'failed', 'refused', 'mean', 'median', '99 %', '99.9 %'].map((t) => el('th', {}, t)))
  const time = (name, which) => el('td', {}, micros(times[name] && Number(times[name][which])))
  return el('div', { class: 'scroll' }, el('table', {}, el('thead', {}, head), el('tbody', {}, rows.map((c) => el('tr', {},
    el('td', {}, c.name), el('td', {}, compact(c.calls)), el('td', { class: c.failed_calls > 0 ? 'warn' : '' }, compact(c.failed_calls)), el('td', { class: c.rejected_calls > 0 ? 'warn' : '' }, compact(c.rejected_calls)),
    el('td', {}, micros(Number(c.usec_per_call))), time(c.name, 'p50'), time(c.name, 'p99'), time(c.name, 'p99.9'))))))
}

function memoryCard(f) {
  const filters = f.used_memory - f.mem_not_counted_for_evict, most = f.memory_max_bytes, share = most ? filters / most : 0
  return card('Memory', el('div', { class: 'big' }, bytes(f.used_memory), most ? bar(share, share > 0.9 ? 'bad' : share > 0.75 ? 'warn' : '') : null),
    list([['filters', bytes(filters)], ['of at most', most ? bytes(most) : 'no limit'], ['peak', bytes(f.memory_peak_bytes)], ['resident', bytes(f.memory_resident_bytes)],
      ['bits of filters', bytes(f.bf_bytes)], ['names, headers', bytes(f.used_memory_dataset - f.bf_bytes + f.mem_overhead_index + f.mem_overhead_expires)],
      ['clients, messages, users', bytes(f.mem_clients_normal + f.mem_overhead_pubsub + f.mem_overhead_users)], ['log', bytes(f.mem_aof_buffer)]]))
}

function persistenceCard(now) {
  const f = now.facts, age = now.nowMs - f.save_last_timestamp_seconds * 1000, none = f.saves === 0
  return card('Saves and log',
    list([['last good save', none ? 'none since the start' : duration(age) + ' ago'], ['changes since', compact(f.save_pending_changes)], f.save_running ? ['now', 'a save runs', 'warn'] : null,
      ['last save', !f.save_last_ok ? now.saveError || 'failed' : none ? '–' : 'succeeded', !f.save_last_ok ? 'bad' : none ? '' : 'good'],
      ['log', !f.log_enabled ? 'off' : f.log_writable ? 'writable' : now.logError || 'cannot be written', !f.log_enabled ? 'warn' : f.log_writable ? 'good' : 'bad'],
      ['size', bytes(f.log_bytes)], ['unsynced', bytes(f.log_unsynced_bytes)], ['last sync', micros(f.log_last_sync_seconds * 1e6)]]))
}

// One curve of the last hour, with its present and its highest value.
function curve(title, points, key, show) {
  const values = points.map((p) => p[key]), known = values.filter((value) => value != null)
  const last = values[values.length - 1]
  return el('div', {}, list([[title, last == null ? '–' : show(last)], ['highest', known.length ? show(Math.max(...known)) : '–']]), spark(values, title, 0))
}

function historyCard(points) {
  const hour = points.length ? duration(points[points.length - 1].unixMs - points[0].unixMs + HISTORY_MS) : 'first ten seconds'
  const perSecond = (value) => compact(value) + '/s'
  return card('The last ' + hour, el('div', { class: 'cards', id: 'history' }, curve('commands', points, 'commands', perSecond), curve('errors', points, 'errors', perSecond),
    curve('median', points, 'p50Us', micros), curve('99 %', points, 'p99Us', micros), curve('memory', points, 'memory', bytes), curve('processors in use', points, 'cpu', (value) => value.toFixed(2))))
}

function processCard(now) {
  const f = now.facts, expires = f.tls_certificate_expires_seconds, left = expires * 1000 - now.nowMs
  const denied = f.acl_access_denied_auth + f.acl_access_denied_cmd + f.acl_access_denied_key + f.acl_access_denied_channel
  return card('Process', el('div', { class: 'big' }, now.cpu == null ? '–' : now.cpu.toFixed(2), ' processors'),
    list([['up', duration(now.uptimeMs)], ['access refused', denied ? el('a', { href: '#/acllog' }, compact(denied)) : '0', denied ? 'warn' : ''],
      ['filters that left memory', compact(f.evictions)],
      expires ? ['certificate', left < 0 ? 'expired' : 'expires in ' + duration(left), left < CERTIFICATE_DAYS * 86400000 ? 'warn' : ''] : null]))
}

async function overview(params, asked) {
  const now = await asked, points = await history(now.nowMs)
  const errors = lines(now.commands, 'errorstat_')
  const f = now.facts, queries = f.query_hits + f.query_misses, refused = f.bf_adds_refused_full + f.bf_adds_refused_memory
  return [el('div', { class: 'cards' },
    card('Traffic', el('div', { class: 'big' }, compact(f.instantaneous_ops_per_sec), ' commands/s'),
      list([['in, out', bytes(f.instantaneous_input_kbps * 1024) + '/s, ' + bytes(f.instantaneous_output_kbps * 1024) + '/s'], ['items added', compact(f.items_added)], ['queries', compact(queries)],
        ['of these hits', queries ? percent(f.query_hits / queries) : '–'], ['errors', compact(f.total_error_replies), f.total_error_replies ? 'warn' : ''], refused ? ['adds refused', compact(refused), 'bad'] : null])),
    memoryCard(f), persistenceCard(now), processCard(now),
    card('Filters', el('div', { class: 'big' }, el('a', { href: '#/filters' }, compact(f.filters))),
      list([['quarantined', f.filters_quarantined ? el('a', { href: '#/filters?quarantined=yes' }, number(f.filters_quarantined)) : '0', f.filters_quarantined ? 'warn' : ''], ['with a time to live', compact(f.filters_expiring)],
        f.sstable_filters ? ['of SSTables', compact(f.sstable_filters)] : null, f.sstable_filters_broken ? ['of these unreadable', compact(f.sstable_filters_broken), 'warn'] : null]),
      el('p', {}, el('a', { href: '#/filters?sort=fill&order=desc' }, 'fullest'), ' · ', el('a', { href: '#/filters?sort=over&order=desc' }, 'highest rates'), ' · ', el('a', { href: '#/filters?sort=bytes&order=desc' }, 'largest'))),
    card('Clients', el('div', { class: 'big' }, el('a', { href: '#/clients' }, compact(f.clients))),
      list([['of at most', number(f.clients_max)], ['waiting', number(f.clients_blocked)], ['subscribed', number(f.clients_pubsub)], ['refused', compact(f.connections_rejected), f.connections_rejected ? 'warn' : '']])),
    errors.length ? card('Errors', list(errors.map((e) => [e.name, compact(e.count)]))) : null),
  historyCard(points),
  card('Commands since the start', commandTable(now.commands))]
}

// ---- filters ----

const COLUMNS = [['name', 'name'], ['items', 'items'], ['capacity', 'capacity'], ['fill', 'fill'], ['rate', 'rate now'], ['over', 'of the rate asked'], ['bytes', 'memory'], ['layers', 'layers'], ['queries', 'queries']]

function filterTitle(row) {
  return (row.db ? 'database ' + row.db + ': ' : '') + (row.name || '(empty name)')
}

function filterLink(row) {
  return row.key == null ? filterTitle(row) : el('a', { href: '#/filter?key=' + row.key }, filterTitle(row))
}

// What sort of filter it is, in a few words.
function kind(row, nowMs) {
  const layout = row.layout === 'na' || row.layout === 'cuckoo' ? '' : row.layout
  return [row.sstable ? 'SSTable' : row.cuckoo ? 'cuckoo' : row.forgets ? 'window' : 'Bloom', layout, row.keyed ? 'KEYED' : '',
    row.expiresMs ? 'expires in ' + duration(Math.max(0, row.expiresMs - nowMs)) : ''].filter(Boolean).join(', ')
}

function filterRow(row, nowMs) {
  const name = el('td', { class: 'name' }, filterLink(row))
  if (row.quarantined) return el('tr', {}, name, el('td', { class: 'warn words', colspan: 9 }, 'quarantined: ' + (row.reason || 'no reason is known')))
  if (row.unread) return el('tr', {}, name, el('td', {}, kind(row, nowMs)), el('td', { class: 'soft', colspan: 8 }, 'not read yet: the first query reads it'))
  const over = row.asked ? row.rate / row.asked : 0
  return el('tr', {}, name, el('td', {}, kind(row, nowMs)), el('td', {}, compact(row.items)), el('td', {}, compact(row.capacity)),
    el('td', { class: fillLevel(row) }, percent(row.fill), bar(row.fill, fillLevel(row))), el('td', { class: rateLevel(row) }, rate(row.rate)),
    el('td', {}, percent(over), bar(over, rateLevel(row))), el('td', {}, bytes(row.bytes)), el('td', {}, number(row.layers)), el('td', {}, compact(row.queries)))
}

function withParams(params, changes) {
  const next = new URLSearchParams(params)
  for (const [name, value] of Object.entries(changes)) value === '' ? next.delete(name) : next.set(name, value)
  return '#/filters' + (String(next) && '?' + next)
}

function filterHead(params) {
  const sort = params.get('sort') || 'name', descending = params.get('order') === 'desc'
  const heads = COLUMNS.map(([key, title]) => {
    const current = key === sort
    const order = current ? (descending ? '' : 'desc') : key === 'name' ? '' : 'desc'
    return el('th', { 'aria-sort': current ? (descending ? 'descending' : 'ascending') : null },
      el('button', { type: 'button', onclick: () => { location.hash = withParams(params, { sort: key, order, offset: '' }) } }, title + (current ? (descending ? ' ↓' : ' ↑') : '')))
  })
  return el('tr', {}, heads[0], el('th', {}, 'kind'), heads.slice(1))
}

function pages(table, params) {
  const end = table.offset + table.rows.length, size = 50
  const go = (offset) => () => { location.hash = withParams(params, { offset: offset || '' }) }
  const cut = end < table.matched && end > table.most
  return el('div', { class: 'pages' },
    el('button', { type: 'button', disabled: table.offset === 0, onclick: go(Math.max(0, table.offset - size)) }, 'back'),
    el('span', { id: 'range' }, table.matched ? `${table.offset + 1}–${end} of ${number(table.matched)}` : 'none', table.matched < table.total ? ` (${number(table.total)} in all)` : ''),
    el('button', { type: 'button', disabled: end >= table.matched || cut, onclick: go(end) }, 'on'),
    cut ? el('span', { class: 'warn' }, 'Pages end here. Search for a part of the name, or sort otherwise, to see others.') : null)
}

async function filters(params, asked) {
  const query = new URLSearchParams({ q: params.get('q') || '', sort: params.get('sort') || 'name', order: params.get('order') || '', offset: params.get('offset') || '0', limit: '50', quarantined: params.get('quarantined') || '' })
  const [now, table] = await Promise.all([asked, ask('/api/filters?' + query)])
  const search = el('input', { type: 'search', name: 'q', value: params.get('q') || '', placeholder: 'part of a name, or a pattern: user:*', 'aria-label': 'search', maxlength: 200 })
  const submit = (event) => { event.preventDefault(); location.hash = withParams(params, { q: search.value, offset: '' }) }
  // Passes over very many filters are made when they are asked for, not every two seconds.
  const again = table.busyMs > 100 ? 60000 : REFRESH_MS
  const all = params.get('quarantined') ? el('a', { href: withParams(params, { quarantined: '', offset: '' }) }, 'only quarantined filters; show all') : null
  return [el('section', { class: 'card' }, el('form', { onsubmit: submit, role: 'search' }, search, all),
    el('div', { class: 'scroll' }, el('table', { id: 'filters' }, el('thead', {}, filterHead(params)), el('tbody', {}, table.rows.map((row) => filterRow(row, now.nowMs))))), pages(table, params)), again]
}

// ---- one filter ----

function layerTable(layers, cuckoo) {
  const titles = cuckoo ? ['sub-filter', 'items', 'slots', 'fill', 'slots taken', 'bucket', 'rate', 'rate when full'] : ['layer', 'items', 'capacity', 'fill', 'bits set', 'k', 'rate', 'its share']
  const head = el('tr', {}, ...titles.map((t) => el('th', {}, t)))
  return el('div', { class: 'scroll' }, el('table', { id: 'layers' }, el('thead', {}, head), el('tbody', {}, layers.map((l, i) => el('tr', {},
    el('td', {}, String(i + 1)), el('td', {}, number(l.items)), el('td', {}, number(l.capacity)), el('td', {}, percent(l.items / l.capacity), bar(l.items / l.capacity, overLevel(l.items / l.capacity))),
    el('td', {}, percent(l.bitsSet)), el('td', {}, number(l.k)), el('td', {}, rate(l.rate)), el('td', {}, rate(l.asked)))))))
}

// The layers of a part come together; those of forgotten parts have none.
function ringParts(layers) {
  const parts = new Map()
  for (const l of layers) {
    if (!l.part) continue
    const p = parts.get(l.part) || { number: l.part, ageS: l.ageS, leftS: l.leftS, items: 0, capacity: 0, bits: 0, set: 0 }
    p.items += l.items
    p.capacity += l.capacity
    p.bits += l.bits
    p.set += l.bits * l.bitsSet
    parts.set(l.part, p)
  }
  return [...parts.values()].sort((a, b) => b.number - a.number)
}

function ringTable(layers) {
  const parts = ringParts(layers)
  if (!parts.length) return el('p', { class: 'soft' }, 'no part is within the window')
  const head = el('tr', {}, ...['part', 'age', 'forgotten in', 'items', 'fill', 'bits set'].map((t) => el('th', {}, t)))
  return el('div', { class: 'scroll' }, el('table', { id: 'ring' }, el('thead', {}, head), el('tbody', {}, parts.map((p) => el('tr', {},
    el('td', {}, String(p.number)), el('td', {}, duration(p.ageS * 1000)), el('td', {}, p.leftS == null ? '–' : duration(p.leftS * 1000)), el('td', {}, number(p.items)),
    el('td', {}, percent(p.items / p.capacity), bar(p.items / p.capacity, overLevel(p.items / p.capacity))), el('td', {}, percent(p.set / p.bits), bar(p.set / p.bits)))))))
}

function windowTitle(w) {
  return `Window of ${w.items ? number(w.items) + ' items' : duration(w.seconds * 1000)}, ${w.parts} parts` + (w.refresh ? ', with refresh' : '')
}

async function filter(params, asked) {
  const key = params.get('key') || ''
  const [now, f] = await Promise.all([asked, ask('/api/filter?key=' + encodeURIComponent(key))])
  if (filterPoints.key !== key) filterPoints = { key, fill: [], rate: [] }
  push(filterPoints.fill, f.fill)
  push(filterPoints.rate, f.measured)
  const title = filterTitle(f)
  if (f.quarantined) return [card(title, el('p', { class: 'bad' }, 'quarantined: ' + f.reason))]
  if (f.unread) return [card(title, el('p', { class: 'soft' }, 'its file has not been read yet: the first query reads it'))]
  const queries = f.hits + f.misses
  const measured = { rate: f.measured, asked: f.asked }
  return [el('h2', { id: 'filter' }, title), el('div', { class: 'cards' },
    card('Items', el('div', { class: 'big' }, number(f.items)), spark(filterPoints.fill, 'fill', 0),
      list([['kind', kind(f, now.nowMs)], ['layout', f.layout], f.key ? ['key', f.key] : null, ['capacity', number(f.capacity) + (f.sstable ? '' : f.fixed ? ', fixed' : ', grows')], ['fill', el('span', {}, percent(f.fill), bar(f.fill, fillLevel(f))), fillLevel(f)], ['memory', bytes(f.bytes)],
        ['expires', f.expiresMs ? when(f.expiresMs / 1000) : 'never']])),
    card('False positives', el('div', { class: 'big ' + rateLevel(measured) }, rate(f.measured), bar(f.asked ? f.measured / f.asked : 0, rateLevel(measured))), spark(filterPoints.rate, 'rate', 0),
      list([[f.cuckoo && f.each[0].asked === f.asked ? 'of one full sub-filter' : 'asked for', rate(f.asked)], [f.cuckoo ? 'from the slots' : 'from the bits', rate(f.measured)], ['from the items', rate(f.rate)], ['reported by clients', rate(f.observed)]])),
    card('Queries', el('div', { class: 'big' }, compact(queries)), list([['hits', compact(f.hits)], ['misses', compact(f.misses)], ['reported as wrong', compact(f.wrong)],
      ['counted since', f.sinceUnix ? when(f.sinceUnix) : '–']]))),
  f.window ? card(windowTitle(f.window), ringTable(f.each)) : null,
  card(f.cuckoo ? 'Sub-filters' : 'Layers', layerTable(f.each, f.cuckoo))]
}

// ---- slow log, clients ----

async function slowlog() {
  const log = await run('/api/slowlog')
  const rows = log.map(([, unix, us, words, address, name]) => el('tr', {}, el('td', {}, when(unix)), el('td', {}, micros(us)), el('td', { class: 'words' }, words.join(' ')), el('td', {}, name || address)))
  return [card('Slow log', rows.length ? el('div', { class: 'scroll' }, el('table', { id: 'slowlog' }, el('tbody', {}, rows))) : el('p', { class: 'soft' }, 'nothing was slow'))]
}

async function clients(params, asked) {
  const { facts } = await asked, all = (await (await reply('/api/clients')).text()).split('\n').slice(0, -1)
  const most = all.map((line) => pairs(line, ' ')).sort((a, b) => b['tot-mem'] - a['tot-mem']).slice(0, CLIENTS)
  const head = el('tr', {}, ...['client', 'user', 'database', 'library', 'last command', 'idle', 'memory', 'pending reply'].map((t) => el('th', {}, t)))
  const rows = most.map((c) => el('tr', {}, el('td', { class: 'name' }, c.addr, c.name ? el('span', { class: 'soft' }, ' ' + c.name) : null), el('td', {}, c.user), el('td', {}, c.db),
    el('td', {}, c['lib-name'] + ' ' + c['lib-ver']), el('td', {}, c.cmd === 'NULL' ? '' : c.cmd), el('td', {}, duration(c.idle * 1000)), el('td', {}, bytes(c['tot-mem'])), el('td', {}, bytes(c.omem))))
  return [card(`Clients: ${number(facts.clients)}` + (rows.length < facts.clients ? `, the ${rows.length} with most memory` + (rows.length < all.length && all.length < facts.clients ? ` of the oldest ${number(all.length)}` : '') : ''), el('div', { class: 'scroll' }, el('table', { id: 'clients' }, el('thead', {}, head), el('tbody', {}, rows))))]
}

async function aclLog() {
  const log = await run('/api/acllog')
  const head = el('tr', {}, ...['last', 'times', 'refused for', 'what', 'user', 'client'].map((t) => el('th', {}, t)))
  const rows = log.map((e) => el('tr', {}, el('td', {}, when(e['timestamp-last-updated'] / 1000)), el('td', {}, compact(e.count)), el('td', {}, e.reason), el('td', { class: 'words' }, e.object), el('td', {}, e.username),
    el('td', { class: 'words' }, (/ addr=(\S+)/.exec(' ' + e['client-info']) || [])[1] || '–')))
  return [card('Refused access', rows.length ? el('div', { class: 'scroll' }, el('table', { id: 'acllog' }, el('thead', {}, head), el('tbody', {}, rows))) : el('p', { class: 'soft' }, 'nothing was refused'))]
}

// ---- views ----

const VIEWS = { '/': overview, '/filters': filters, '/filter': filter, '/slowlog': slowlog, '/clients': clients, '/acllog': aclLog }

// What a view shows that the daemon refuses, such as that of a filter that is gone.
function nothing(error) {
  if (!(error instanceof Refusal)) throw error
  return [card('Nothing to show', el('p', { class: 'soft' }, error.message))]
}

async function show(fresh) {
  const mine = ++shown
  clearTimeout(timer)
  const [path, query] = (location.hash.slice(1) || '/').split('?')
  const view = VIEWS[path] || overview
  let again = REFRESH_MS
  try {
    if (!document.hidden || fresh) {
      const used = !fresh && (document.activeElement?.tagName === 'INPUT' || String(getSelection())) // by a person, now
      askedMs = Date.now()
      const asked = ask('/api/overview')
      const [now, parts] = await Promise.all([asked, view(new URLSearchParams(query || ''), asked).catch(nothing)])
      if (mine !== shown) return
      askedMs = 0
      answeredMs = Date.now()
      main.classList.remove('stale')
      if (typeof parts[parts.length - 1] === 'number') again = parts.pop()
      showState(now)
      if (!used) main.replaceChildren(...parts.filter(Boolean))
      main.dataset.view = path
    }
  } catch (error) {
    if (mine !== shown) return
    askedMs = 0
    showSilence(error instanceof Refusal ? error.message : 'no answer')
    if (fresh) main.replaceChildren(card('Nothing to show', el('p', { class: 'bad' }, error.message)))
  }
  timer = setTimeout(() => show(false), again)
}

function mark() {
  const path = (location.hash.slice(1) || '/').split('?')[0]
  for (const link of document.querySelectorAll('nav a')) {
    const to = link.getAttribute('href').slice(1)
    to === path || (to === '/filters' && path === '/filter') ? link.setAttribute('aria-current', 'page') : link.removeAttribute('aria-current')
  }
}

addEventListener('hashchange', () => { mark(); show(true) })
document.addEventListener('visibilitychange', () => { if (!document.hidden) show(false) })
setInterval(() => { if (askedMs && Date.now() - askedMs > PATIENCE_MS) showSilence('no answer') }, 1000)
mark()
show(true)
