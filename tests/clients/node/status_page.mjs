// The status page: its HTML, its JSON, and, where there is a Chromium, what a person sees and clicks. With
// BLOOMERY_SCREENSHOTS=<folder> the browser's pictures are kept there.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import net from 'node:net';
import { hostname } from 'node:os';
import path from 'node:path';

import { Browser, findBrowser } from './browser.mjs';

const { BLOOMERY_PORT, BLOOMERY_WEB_PORT, BLOOMERY_AUTH_WEB_PORT, BLOOMERY_PASSWORD, BLOOMERY_SCREENSHOTS } = process.env;
const page = `http://127.0.0.1:${BLOOMERY_WEB_PORT}`;
const HOSTILE = ['<script>alert(1)</script>', '"><img src=x onerror=alert(2)>', '\u2028\u202e', '</td>&lt;', "'\"`\\"];

// ---- RESP, as far as it is needed: commands whose replies are one line ----

async function commands(list) {
    const socket = net.connect(Number(BLOOMERY_PORT), '127.0.0.1');
    const bytes = word => (Buffer.isBuffer(word) ? word : Buffer.from(String(word)));
    const encode = words => Buffer.concat([Buffer.from(`*${words.length}\r\n`),
        ...words.flatMap(word => [Buffer.from(`$${bytes(word).length}\r\n`), bytes(word), Buffer.from('\r\n')])]);
    socket.write(Buffer.concat(list.map(encode)));
    let text = '';
    while (text.split('\r\n').length <= list.length)
        text += (await once(socket, 'data'))[0];
    socket.end();
    const lines = text.split('\r\n').slice(0, -1);
    lines.forEach((line, i) => assert.ok(!line.startsWith('-'), `${list[i][0]}: ${line}`));
    return lines;
}

// BF.MADD replies with an array: one add for each item instead.
const fill = (name, items) => [['BF.RESERVE', name, '0.01', '100', 'NONSCALING'],
    ...Array.from({ length: items }, (_, i) => ['BF.ADD', name, `item:${i}`])];

const get = (where, headers) => fetch(page + where, { headers });
async function json(where) {
    const reply = await get(where);
    assert.equal(reply.status, 200, `${where}: ${reply.status}`);
    assert.equal(reply.headers.get('content-type'), 'application/json');
    const text = await reply.text();
    assert.ok(!/[<>&]/.test(text), `${where} has what means something in HTML`);
    return JSON.parse(text);
}
async function resp(where) {
    const reply = await get(where);
    assert.equal(reply.status, 200, `${where}: ${reply.status}`);
    assert.equal(reply.headers.get('content-type'), 'application/octet-stream');
    return reply.text();
}
const hex = text => Buffer.from(text).toString('hex');

// ---- tests ----

const tests = {
    async 'files are complete and need nothing from elsewhere'() {
        for (const [file, type] of [['/', 'text/html'], ['/page.js', 'text/javascript'], ['/page.css', 'text/css'], ['/icon.svg', 'image/svg+xml']]) {
            const reply = await get(file);
            const text = await reply.text();
            assert.equal(reply.status, 200, file);
            assert.ok(reply.headers.get('content-type').startsWith(type), file);
            assert.match(reply.headers.get('content-security-policy'), /^default-src 'none';/);
            assert.ok(!/https?:\/\/(?!www\.w3\.org\/2000\/svg)/.test(text), `${file} names another server`);
            assert.ok(!/\son\w+=|<style|style=|<script>|javascript:/.test(file === '/' ? text : ''), 'inline code');
            assert.ok(!/innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(/.test(text), `${file} writes HTML`);
        }
    },

    async 'filters are searched, sorted and cut into pages by the server'() {
        await commands([...Array.from({ length: 120 }, (_, i) => fill(`page:${String(i).padStart(3, '0')}`, i % 101)).flat(),
            ...HOSTILE.map(name => ['BF.ADD', name, 'x']), ['BF.ADD', Buffer.from([0xff, 0x00, 0x0a]), 'x'], ['BF.ADD', '', 'x'],
            ['BF.ADD', Buffer.alloc(60000, 'n'), 'x']]);
        const all = await json('/api/filters?limit=200');
        assert.equal(all.total, 120 + HOSTILE.length + 3);
        assert.equal(all.rows.length, all.total);
        const first = await json('/api/filters?q=PAGE:&limit=50');
        assert.equal(first.matched, 120);
        assert.deepEqual(first.rows.map(row => row.name).slice(0, 3), ['page:000', 'page:001', 'page:002']);
        const last = await json('/api/filters?q=page:*&limit=50&offset=100');
        assert.deepEqual([last.rows.length, last.rows[19].name], [20, 'page:119']);
        const full = await json('/api/filters?q=page:&sort=fill&order=desc&limit=5');
        assert.deepEqual(full.rows.map(row => row.items), [100, 99, 98, 97, 96]);
        assert.deepEqual([full.rows[0].fill, full.rows[0].fixed, full.rows[0].capacity], [1, true, 100]);
        const low = await json('/api/filters?q=page:0??&sort=items&limit=3');
        assert.deepEqual(low.rows.map(row => row.name), ['page:000', 'page:001', 'page:002']);
        await commands(Array.from({ length: 7 }, () => ['BF.EXISTS', 'page:055', 'x']));
        const [hot] = (await json('/api/filters?sort=queries&order=desc&limit=1')).rows;
        assert.deepEqual([hot.name, hot.queries], ['page:055', 7]);
        for (const sort of ['name', 'items', 'capacity', 'fill', 'rate', 'over', 'bytes', 'layers', 'queries']) {
            const up = (await json(`/api/filters?sort=${sort}&limit=200`)).rows, down = (await json(`/api/filters?sort=${sort}&order=desc&limit=200`)).rows;
            assert.equal(new Set(up.map(row => row.name)).size, all.total);
            if (sort !== 'name' && sort !== 'over')
                for (let i = 1; i < up.length; i++)
                    assert.ok(up[i - 1][sort] <= up[i][sort] && down[i - 1][sort] >= down[i][sort], sort);
        }
    },

    async 'wrong queries are refused'() {
        for (const query of ['limit=201', 'limit=x', 'limit=', 'offset=5001', 'offset=-1', 'offset=99999999999', 'sort=no', 'sort=', `q=${'a'.repeat(300)}`]) {
            const reply = await get(`/api/filters?${query}`);
            assert.equal(reply.status, 400, query);
            await reply.text();
        }
        assert.deepEqual((await json('/api/filters?limit=0')).rows, []);
        assert.deepEqual((await json('/api/filters?q=no-such-name')).rows, []);
        assert.deepEqual((await json('/api/filters?offset=5000')).rows, []);
        for (const key of ['zz', 'abc', hex('no such filter'), '0x', 'FF'])
            assert.equal((await get(`/api/filter?key=${key}`)).status, 404, key);
    },

    async 'every name leads to its filter'() {
        const { rows } = await json('/api/filters?limit=200');
        for (const row of rows.filter(each => each.key !== null)) {
            const filter = await json(`/api/filter?key=${row.key}`);
            assert.deepEqual([filter.name, filter.items], [row.name, row.items]);
            assert.equal(filter.each.length, filter.layers);
            assert.ok(filter.items === 0 || filter.measured > 0);
        }
        assert.equal(rows.filter(row => row.key === null).length, 1); // the one of 60,000 bytes
        assert.ok(rows.some(row => row.name.startsWith('\\xff\\x00\\x0a~')));
        const hostile = await json(`/api/filter?key=${hex(HOSTILE[0])}`);
        assert.equal(hostile.name, HOSTILE[0]);
    },

    async 'the page of a window has its parts'() {
        await commands([['BF.RESERVE', 'ring:time', '0.01', '100', 'WINDOW', '3600', 'PARTS', '4', 'REFRESH'], ['BF.ADD', 'ring:time', 'x'],
            ['BF.RESERVE', 'ring:items', '0.01', '60', 'WINDOW', 'ITEMS', '40', 'PARTS', '4'],
            ...Array.from({ length: 60 }, (_, i) => ['BF.ADD', 'ring:items', `item:${i}`])]);
        const byTime = await json(`/api/filter?key=${hex('ring:time')}`);
        assert.deepEqual(byTime.window, { seconds: 3600, parts: 4, refresh: true });
        assert.deepEqual(byTime.each.map(layer => [layer.part, layer.items]), [[1, 1]]);
        const [only] = byTime.each;
        assert.ok(only.ageS >= 0 && only.leftS > 3600 && only.ageS + only.leftS <= 4500, JSON.stringify(only));
        const byItems = await json(`/api/filter?key=${hex('ring:items')}`);
        assert.deepEqual(byItems.window, { items: 40, parts: 4, refresh: false });
        const living = byItems.each.filter(layer => layer.part > 0);
        assert.ok(living.length >= 5 && living.every(layer => layer.leftS === null));
        assert.equal(living.reduce((sum, layer) => sum + layer.items, 0), byItems.items);
        assert.equal((await json(`/api/filter?key=${hex('page:100')}`)).window, null);
    },

    async 'overview, slow log and clients say what was done'() {
        await commands([['CONFIG', 'SET', 'slowlog-log-slower-than', '0'], ['BF.EXISTS', 'page:100', HOSTILE[0]], ['BF.EXISTS', 'page:100', Buffer.from([0xc3, 0x28])],
            ['CONFIG', 'SET', 'slowlog-log-slower-than', '10000'], ['CLIENT', 'SETNAME', '<b>me</b>']]);
        const now = await json('/api/overview');
        assert.deepEqual([now.facts.ready, now.state, now.port], [1, 'ready', Number(BLOOMERY_PORT)]);
        assert.deepEqual([now.host, now.facts.tls_certificate_expires_seconds, now.facts.evictions], [hostname(), 0, 0]);
        const { stepMs, points } = await json('/api/history');
        assert.ok(stepMs === 10000 && points.every(point => point.memory > 0 && point.cpu >= 0), JSON.stringify(points));
        assert.ok(now.facts.items_added > 5000 && now.facts.used_memory > now.facts.bf_bytes && now.facts.save_last_ok && now.facts.log_writable);
        assert.match(now.commands, /^cmdstat_bf\.add:calls=\d+,usec=/m);
        assert.match(now.commands, /^latency_percentiles_usec_bf\.add:p50=[\d.]+,p99=[\d.]+,p99\.9=[\d.]+\r$/m);
        const slow = await resp('/api/slowlog');
        assert.ok(slow.includes(`\r\n$9\r\nBF.EXISTS\r\n$8\r\npage:100\r\n$${HOSTILE[0].length}\r\n${HOSTILE[0]}\r\n`), slow);
        assert.ok(slow.includes('\r\n$2\r\n\ufffd(\r\n'), slow);
        const socket = net.connect(Number(BLOOMERY_PORT), '127.0.0.1');
        socket.write('CLIENT SETNAME <b>me</b>\r\n');
        await once(socket, 'data');
        assert.match(await resp('/api/clients'), /^id=\d+ addr=.* name=<b>me<\/b> .* db=0 .* cmd=client\|setname user=default .*$/m);
        socket.end();
    },

    async 'refused access is listed'() {
        await commands([['ACL', 'SETUSER', '<i>ann</i>', 'on', '>pw', '+ping']]);
        const socket = net.connect(Number(BLOOMERY_PORT), '127.0.0.1');
        socket.write('AUTH <i>ann</i> wrong\r\n');
        await once(socket, 'data');
        socket.end();
        const log = await resp('/api/acllog');
        assert.match(log, /%10\r\n\$5\r\ncount\r\n:1\r\n\$6\r\nreason\r\n\$4\r\nauth\r\n[^%]*\r\n\$10\r\n<i>ann<\/i>\r\n/);
        assert.ok((await json('/api/overview')).facts.acl_access_denied_auth > 0);
    },

    async 'the password guards page and data'() {
        const locked = `http://127.0.0.1:${BLOOMERY_AUTH_WEB_PORT}`;
        const basic = Buffer.from(`any:${BLOOMERY_PASSWORD}`).toString('base64');
        for (const where of ['/', '/page.js', '/api/overview', '/api/filters', '/metrics']) {
            assert.equal((await fetch(locked + where)).status, 401, where);
            assert.equal((await fetch(locked + where, { headers: { authorization: `Basic ${basic}` } })).status, 200, where);
        }
        assert.equal((await fetch(`${locked}/healthz`)).status, 200);
    },

    async 'a person sees and clicks'() {
        const command = findBrowser();
        if (!command) {
            console.log('skipped: there is no Chromium (Debian: chromium)');
            return;
        }
        const browser = new Browser(command);
        try {
            await browser.open();
            await look(browser);
            assert.deepEqual(browser.problems, []);
            const elsewhere = browser.requests.filter(url => !url.startsWith(page) && !url.startsWith('about:'));
            assert.deepEqual(elsewhere, []);
            await marks(browser);
            await warnings(browser);
            await silence(browser);
            await password(browser);
        } finally {
            await browser.close();
        }
    },
};

// ---- in the browser ----

async function picture(browser, name) {
    const png = await browser.screenshot();
    assert.ok(png.length > 1000);
    if (BLOOMERY_SCREENSHOTS)
        writeFileSync(path.join(BLOOMERY_SCREENSHOTS, `${name}.png`), png);
}

async function size(browser, width, height) {
    await browser.send('Emulation.setDeviceMetricsOverride', { width, height, deviceScaleFactor: 1, mobile: width < 600 });
}

const theme = (browser, value) => browser.send('Emulation.setEmulatedMedia', { features: [{ name: 'prefers-color-scheme', value }] });
const names = `[...document.querySelectorAll('#filters tbody tr td:first-child')].map(td => td.textContent)`;

async function look(browser) {
    await size(browser, 1200, 900);
    await theme(browser, 'light');
    await browser.send('Page.navigate', { url: `${page}/` });
    await browser.until(`document.getElementById('state').textContent === 'ready' && document.body.innerText.includes('commands/s')`);
    assert.match(await browser.run('document.title'), new RegExp(`^\\S+:${BLOOMERY_PORT} – Bloomery$`));
    assert.ok(await browser.run(`document.querySelectorAll('#history svg').length`) === 6);
    const light = await browser.run('getComputedStyle(document.body).backgroundColor');
    await picture(browser, 'overview');
    await theme(browser, 'dark');
    assert.notEqual(await browser.run('getComputedStyle(document.body).backgroundColor'), light);
    await picture(browser, 'overview-dark');

    await browser.run(`location.hash = '#/filters'`);
    await browser.until(`document.querySelectorAll('#filters tbody tr').length === 50`);
    await browser.run(`[...document.querySelectorAll('th button')].find(b => b.textContent.startsWith('fill')).click()`);
    await browser.until(`location.hash.includes('sort=fill') && ${names}[0] === 'page:100'`);
    assert.ok(await browser.run(`document.querySelector('.bar.bad i').getBoundingClientRect().width > 50`), 'the bar of a full filter');
    await picture(browser, 'filters');
    await browser.run(`[...document.querySelectorAll('.pages button')].pop().click()`);
    await browser.until(`document.getElementById('range').textContent.startsWith('51')`);
    await browser.run(`const input = document.querySelector('input[type=search]'); input.value = 'script'; input.form.requestSubmit()`);
    await browser.until(`${names}.length === 1`);
    assert.equal(await browser.run(`${names}[0]`), HOSTILE[0]);
    assert.equal(await browser.run(`document.querySelectorAll('main script, main img').length`), 0);
    await browser.run(`document.querySelector('#filters tbody a').click()`);
    await browser.until(`document.querySelector('#layers tbody tr') !== null`);
    assert.equal(await browser.run(`document.getElementById('filter').textContent`), HOSTILE[0]);
    assert.equal(await browser.run(`document.querySelectorAll('.spark').length`), 2);
    await picture(browser, 'filter');

    await browser.run(`location.hash = '#/filter?key=${hex('ring:items')}'`);
    await browser.until(`document.querySelectorAll('#ring tbody tr').length >= 5`);
    assert.match(await browser.run(`document.body.innerText`), /Window of 40 items, 4 parts/);
    assert.ok(await browser.run(`document.querySelector('#ring tbody tr:nth-child(2) .bar i').getBoundingClientRect().width > 30`), 'the bar of a part');
    const parts = await browser.run(`[...document.querySelectorAll('#ring tbody tr td:first-child')].map(td => Number(td.textContent))`);
    assert.deepEqual(parts, [...parts].sort((a, b) => b - a));
    await picture(browser, 'window');

    await size(browser, 390, 844); // a telephone
    for (const view of ['/', '/filters', '/filter?key=' + hex('page:100'), '/filter?key=' + hex('ring:items'), '/slowlog', '/clients', '/acllog']) {
        await browser.run(`location.hash = '#${view}'`);
        await browser.until(`document.getElementById('main').dataset.view === ${JSON.stringify(view.split('?')[0])}`);
        const [seen, whole] = await browser.run('[document.documentElement.clientWidth, document.documentElement.scrollWidth]');
        assert.ok(whole <= seen, `${view} is ${whole} wide on a screen of ${seen}`);
        await picture(browser, `telephone-${view.split(/[/?]/)[1] || 'overview'}`);
    }
    await browser.run(`location.hash = '#/filter?key=00ff'`);
    await browser.until(`document.body.innerText.includes('no such filter')`);
    browser.problems = browser.problems.filter(problem => !problem.includes('404')); // the one before
}

const go = (browser, view) => browser.run(`location.hash = '#${view}'`);
const state = `document.getElementById('state').textContent`;

// The table and the page of a filter say of which kind it is, and when it expires; a full window has no green bar; pages
// that end say so.
async function marks(browser) {
    await size(browser, 1200, 900);
    await commands([['BF.RESERVE', 'mark:theirs', '0.01', '100', 'LAYOUT', 'redisbloom'], ['CF.RESERVE', 'mark:slots', '100'], ['BF.RESERVE', 'mark:plain', '0.01', '100'],
        ['EXPIRE', 'mark:plain', '7200'], ['BF.RESERVE', 'mark:ring', '0.01', '20', 'WINDOW', 'ITEMS', '20', 'PARTS', '2'],
        ...Array.from({ length: 29 }, (_, i) => ['BF.ADD', 'mark:ring', `item:${i}`])]);
    await go(browser, '/filters?q=mark:');
    await browser.until(`${names}.length === 4`);
    assert.match(await browser.run(`[...document.querySelectorAll('#filters tbody td:nth-child(2)')].map(td => td.textContent).join('; ')`),
        /^Bloom, expires in (2 h 0|1 h 5\d) min; window; cuckoo; Bloom, redisbloom$/);
    const { rows: [, ring] } = await json('/api/filters?q=mark:');
    assert.ok(ring.fill > 1, JSON.stringify(ring));
    assert.ok(await browser.run(`document.querySelector('#filters tbody tr:nth-child(2) .bar.bad') !== null`), 'a window that is over full');
    await go(browser, '/filter?key=' + hex('mark:theirs'));
    await browser.until(`document.getElementById('filter')?.textContent === 'mark:theirs'`);
    assert.match(await browser.run('document.body.innerText'), /kind\s+Bloom, redisbloom\s+layout\s+redisbloom/);
    await picture(browser, 'marks');
    await commands(Array.from({ length: 5100 }, (_, i) => ['BF.RESERVE', `many:${i}`, '0.1', '1']));
    await go(browser, '/filters?q=many:&offset=4950');
    await browser.until(`document.getElementById('range')?.textContent.startsWith('4951')`);
    assert.ok(!(await browser.run('document.body.innerText')).includes('Pages end here'));
    await browser.run(`[...document.querySelectorAll('.pages button')].pop().click()`);
    await browser.until(`document.getElementById('range').textContent.startsWith('5001') && document.body.innerText.includes('Pages end here')`);
    await picture(browser, 'pages-end');
}

// All that is wrong stands in the header, what refuses writes first. A filter that is not there is no silence.
async function warnings(browser) {
    await go(browser, '/filter?key=00ff');
    await browser.until(`document.body.innerText.includes('no such filter') && ${state} === 'ready'`);
    await go(browser, '/');
    await browser.until(`document.body.innerText.includes('last good save')`);
    const { facts } = await json('/api/overview');
    if (facts.saves === 0)
        assert.match(await browser.run('document.body.innerText'), /last good save\s+none since the start/);
    await commands([['CONFIG', 'SET', 'maxmemory', '1'], ['CONFIG', 'SET', 'read-only', 'yes']]);
    await browser.until(`${state} === 'read-only is yes: writes are refused · memory is full: adds are refused'`);
    assert.match(await browser.run('document.title'), /^read-only is yes: writes are refused \(and 1 more\) – /);
    const bad = await browser.run(`getComputedStyle(document.querySelector('#state .bad')).color`);
    assert.equal(await browser.run(`getComputedStyle(document.querySelector('#state a')).color`), bad);
    await picture(browser, 'warnings');
    await commands([['CONFIG', 'SET', 'read-only', 'no'], ['CONFIG', 'SET', 'maxmemory', '0']]);
    await browser.until(`${state} === 'ready'`);
    browser.problems = browser.problems.filter(problem => !problem.includes('404'));
    assert.deepEqual(browser.problems, []);
}

// Without an answer the numbers stay, and their age is told: of a daemon that is stopped, and of one that has gone.
async function silence(browser) {
    for (const fetch of ['() => new Promise(() => {})', `async () => { throw new TypeError('Failed to fetch') }`]) {
        await browser.run(`window.kept = window.kept || window.fetch; window.fetch = ${fetch}`);
        await browser.until(`/^no answer; what is shown is \\d+ s old$/.test(${state}) && document.querySelector('main.stale .card')`);
    }
    await picture(browser, 'silence');
    await browser.run(`window.fetch = window.kept; location.hash = '#/clients'`);
    await browser.until(`${state} === 'ready' && !document.querySelector('main.stale')`);
}

// A name and a password in the address.
async function password(browser) {
    await browser.send('Page.navigate', { url: `http://any:${BLOOMERY_PASSWORD}@127.0.0.1:${BLOOMERY_AUTH_WEB_PORT}/` });
    await browser.until(`${state} === 'ready' && document.body.innerText.includes('commands/s')`);
    assert.deepEqual(browser.problems, []);
}

let failed = 0;
for (const [name, test] of Object.entries(tests)) {
    try {
        await test();
        console.log(`ok: ${name}`);
    } catch (error) {
        failed++;
        console.error(`failed: ${name}\n${error.stack}`);
    }
}
process.exit(failed ? 1 : 0);
