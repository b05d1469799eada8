
#include <inttypes.h>
#include <time.h>
#include <unistd.h>

#include "exclusive.h"
#include "journal.h"
#include "log_text.h"
#include "persistence.h"
#include "main_loop.h"
#include "saver.h"
#include "worker.h"
#include "lock.h"

/* The longest time for which clients are served during the first of the two last saves. The saver yields to workers, so
 * clients that keep all processors busy could delay the end without limit. */
#define SERVED_MS 15000

/* ---- the gate ---- */

/* Between gate_close() and gate_open() all workers stand still: no add runs, acknowledged ones are in memory. */
static void gate_close(struct server *server, struct worker_gate *gate)
{
    sem_init(&gate->passed, 0, 0);
    sem_init(&gate->open, 0, 0);
    exclusive_order_lock(server->exclusive);
    for (unsigned i = 0; i < server->threads.nworkers; i++)
        while (worker_post_gate(server->threads.workers[i], gate) != 0)
            usleep(1000);
    exclusive_order_unlock(server->exclusive);
    for (unsigned i = 0; i < server->threads.nworkers; i++)
        lock_wait_for(&gate->passed);
}

static void gate_open(struct server *server, struct worker_gate *gate, bool ends)
{
    gate->ends = ends;
    for (unsigned i = 0; i < server->threads.nworkers; i++)
        sem_post(&gate->open);
    for (unsigned i = 0; i < server->threads.nworkers; i++)
        lock_wait_for(&gate->passed);
    sem_destroy(&gate->open);
    sem_destroy(&gate->passed);
}

/* ---- the log in place of a save ---- */

/* Whether the log records changes, and is complete with the last save. It is incomplete after it was switched on at run
 * time, or has missed a record, until the next save is committed. */
static bool log_is_whole(struct server *server)
{
    const struct journal *journal = server_journal(server);
    return journal && journal_records(journal) && journal_is_whole(journal);
}

static bool log_needs_save(struct server *server)
{
    struct journal *journal = server_journal(server);
    struct errbuf err;
    return journal && (!journal_is_whole(journal) || (journal_records(journal) && journal_look(journal, 0, &err) != 0));
}

/* Behind the gate: whether the next start finds every change in the log. If it does, logs that. */
static bool log_suffices(struct main_loop *ml, struct errbuf *err)
{
    struct server *server = ml->server;
    struct journal *journal = server_journal(server);
    struct saver_info info;
    if (!journal || !journal_records(journal))
        return false;
    int status = journal_sync(journal, err);
    if (journal_look(journal, 0, err) != 0)
        return false;
    saver_info(server->persistence->saver, &info);
    if (!journal_is_whole(journal)) {
        if (status == 0)
            errbuf_set(err, "some changes are neither in the log nor in a save");
        return false;
    }
    if (status == 0)
        log_notice(&server->log,
                   "ending without a save: the log has every change since the last save (%" PRIu64
                   "), and the next start replays it: nothing is lost",
                   info.changes);
    else
        log_warning(&server->log,
                    "ending, although the log cannot be written: %s; the file of pending records has the missing "
                    "changes, and the next start reads it: nothing is lost if both machine and file stay",
                    err->text);
    return true;
}

/* ---- lost changes ---- */

static struct log_text since_text(int64_t unix_s)
{
    struct log_text text;
    time_t seconds = (time_t)unix_s;
    struct tm utc;
    gmtime_r(&seconds, &utc);
    strftime(text.text, sizeof(text.text), "%Y-%m-%dT%H:%M:%SZ", &utc);
    return text;
}

/* `err`: the reason why the changes are not saved; "": no save is wanted. */
static void tell_lost(struct main_loop *ml, const struct errbuf *err)
{
    struct server *server = ml->server;
    const struct journal *journal = server_journal(server);
    bool log = journal && journal_records(journal);
    struct saver_info info;
    saver_info(server->persistence->saver, &info);
    if (info.changes == 0)
        return;
    ml->end.lost = err->text[0] && ending_is_signalled(&ml->end);
    if (!err->text[0])
        log_notice(&server->log, "ending without a save; not kept: %s since %s", log_count(info.changes, "change").text,
                   since_text(info.last_save_unix).text);
    else
        log_warning(&server->log, "ending; lost: %s%s since %s: %s", log ? "all unlogged changes of " : "",
                    log_count(info.changes, "change").text, since_text(info.last_save_unix).text, err->text);
}

/* ---- the end ---- */

/* The save at the end, in two parts: earlier changes while clients are served, and after the gate the few others. */
static bool save_at_the_end(struct main_loop *ml, int64_t most_ms, struct errbuf *err)
{
    if (saver_run_final(ml->server->persistence->saver, most_ms, err) >=
        0) /* SAVER_BUSY: it continues after the gate */
        return true;
    log_warning(&ml->server->log, "the last save failed: %s", err->text);
    return false;
}

/* After a failed save, whether the log is to be asked: an explicit request of a save must report the failure. */
static bool log_may_do(struct main_loop *ml, const struct shutdown_request *request)
{
    return request->save == SHUTDOWN_SAVE_BY_RULES && log_is_whole(ml->server);
}

/* Behind the gate, where nothing changes any more: whether the daemon may end. `save`: the first part of the last save
 * has succeeded, or continues. `wanted`: a save was tried. */
static bool finish(struct main_loop *ml, const struct shutdown_request *request, bool save, bool wanted,
                   struct errbuf *err)
{
    const struct journal *journal = server_journal(ml->server);
    bool log = journal && journal_records(journal);
    if (save && save_at_the_end(ml, 0, err))
        return true;
    if (wanted && !request->force && !log_may_do(ml, request))
        return false;
    if (log_suffices(ml, err))
        return true;
    if (log && !request->force && request->save != SHUTDOWN_NOSAVE) {
        log_warning(&ml->server->log, "not ending, as unsaved changes would be lost: %s", err->text);
        return false;
    }
    if (request->save == SHUTDOWN_NOSAVE)
        err->text[0] = '\0';
    tell_lost(ml, err);
    return true;
}

/* Logged before it is done: on a disk that hangs it is the last line that the operator reads. */
static void announce(struct main_loop *ml, const struct shutdown_request *request, bool save)
{
    struct server *server = ml->server;
    const struct journal *journal = server_journal(server);
    if (ml->end.state == END_RETRYING && request == &ml->end.request)
        return; /* it has been said */
    if (save)
        log_notice(&server->log,
                   "saving before the end; a second signal ends the daemon immediately, with the previous save and "
                   "the log so far");
    else if (journal && journal_records(journal))
        log_notice(&server->log,
                   "waiting for the sync of the log; a second signal ends the daemon immediately, with the log so far");
}

static bool wants_save(struct server *server, const struct shutdown_request *request)
{
    if (server_loading(server))
        return false; /* no data can have changed, and not all is loaded */
    rcu_reader_online();
    bool rules = server_config(server)->data.save.count > 0;
    rcu_reader_offline();
    return request->save == SHUTDOWN_SAVE ||
           (request->save == SHUTDOWN_SAVE_BY_RULES && (rules || log_needs_save(server)));
}

bool ending_try(struct main_loop *ml, const struct shutdown_request *request, struct errbuf *err)
{
    struct server *server = ml->server;
    if (server_loading(server) && !server_journal(server)) {
        ml->end.request = *request;
        main_loop_end(ml, END_LEAVE);
        return true;
    }
    struct journal *journal = server_journal(server);
    struct worker_gate gate;
    /* While the main thread waits for the disk, a second signal ends the process at once. The data directory is safe
     * then: it holds the previous save and the log. */
    if (journal || wants_save(server, request))
        main_loop_watch_ends(false);
    bool save = wants_save(server, request);
    announce(ml, request, save);
    supervisor_pause(&ml->supervisor);
    bool saved = save && save_at_the_end(ml, SERVED_MS, err);
    bool ends = !save || saved || request->force || log_may_do(ml, request);
    if (ends) {
        gate_close(server, &gate);
        ends = finish(ml, request, saved, save, err);
        if (ends)
            main_loop_end(ml, END_AGREED);
        gate_open(server, &gate, ends);
    }
    if (ends) {
        supervisor_stopping(&ml->supervisor);
    } else {
        supervisor_resume(&ml->supervisor);
        main_loop_watch_ends(true);
    }
    return ends;
}
