// Chromium without a window, driven through its pipe of the DevTools protocol: messages of JSON that end with a NUL.
import { spawn, spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';

const PATIENCE_MS = 60000;

// The browser's command, or null where there is none.
export function findBrowser() {
    for (const name of [process.env.CHROMIUM, 'chromium', 'chromium-browser', 'google-chrome'])
        if (name && spawnSync(name, ['--version']).status === 0)
            return name;
    return null;
}

export class Browser {
    constructor(command) {
        this.profile = mkdtempSync(path.join(tmpdir(), 'bloomery-chromium-'));
        this.process = spawn(command, ['--headless', '--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage', '--no-first-run',
            '--disable-background-networking', '--disable-component-update', '--disable-sync', '--remote-debugging-pipe',
            `--user-data-dir=${this.profile}`, 'about:blank'], { stdio: ['ignore', 'ignore', 'ignore', 'pipe', 'pipe'] });
        this.waiting = new Map();
        this.next = 1;
        this.problems = []; // errors of scripts, violations of the policy, requests to elsewhere
        this.requests = [];
        let text = '';
        this.process.stdio[4].on('data', data => {
            const messages = (text += data).split('\0');
            text = messages.pop();
            messages.forEach(message => this.#take(JSON.parse(message)));
        });
    }

    #take(message) {
        const waiting = this.waiting.get(message.id);
        this.waiting.delete(message.id);
        if (waiting)
            message.error ? waiting.reject(new Error(message.error.message)) : waiting.resolve(message.result);
        else if (message.method === 'Runtime.exceptionThrown')
            this.problems.push(message.params.exceptionDetails.exception?.description || message.params.exceptionDetails.text);
        else if (message.method === 'Log.entryAdded' && message.params.entry.level === 'error')
            this.problems.push(`${message.params.entry.text} ${message.params.entry.url || ''}`);
        else if (message.method === 'Network.requestWillBeSent')
            this.requests.push(message.params.request.url);
        else if (message.method === 'Page.javascriptDialogOpening')
            this.problems.push(`a dialog: ${message.params.message}`);
    }

    send(method, params = {}) {
        const id = this.next++;
        this.process.stdio[3].write(JSON.stringify({ id, method, params, sessionId: this.session }) + '\0');
        return new Promise((resolve, reject) => {
            const patience = setTimeout(() => reject(new Error(`no answer to ${method}`)), PATIENCE_MS);
            this.waiting.set(id, {
                resolve: value => (clearTimeout(patience), resolve(value)),
                reject: error => (clearTimeout(patience), reject(error)),
            });
        });
    }

    async open() {
        const { targetInfos } = await this.send('Target.getTargets');
        const { targetId } = targetInfos.find(target => target.type === 'page');
        this.session = (await this.send('Target.attachToTarget', { targetId, flatten: true })).sessionId;
        for (const domain of ['Page', 'Runtime', 'Log', 'Network'])
            await this.send(`${domain}.enable`);
    }

    async run(expression) {
        const { result, exceptionDetails } = await this.send('Runtime.evaluate', { expression, awaitPromise: true, returnByValue: true });
        if (exceptionDetails)
            throw new Error(exceptionDetails.exception?.description || exceptionDetails.text);
        return result.value;
    }

    // Waits until the expression is true; it may fail while the page is being loaded.
    async until(expression) {
        for (const end = Date.now() + PATIENCE_MS; Date.now() < end; await pause(50))
            if (await this.run(expression).catch(() => false))
                return;
        throw new Error(`not within ${PATIENCE_MS} ms: ${expression}; the page: ${await this.run('document.body.innerText')}`);
    }

    async screenshot() {
        return Buffer.from((await this.send('Page.captureScreenshot')).data, 'base64');
    }

    async close() {
        const ended = new Promise(resolve => this.process.once('exit', resolve));
        this.send('Browser.close').catch(() => {});
        const patience = setTimeout(() => this.process.kill('SIGKILL'), 5000);
        await ended;
        clearTimeout(patience);
        rmSync(this.profile, { recursive: true, force: true, maxRetries: 5 });
    }
}
