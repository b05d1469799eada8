/* BF.IMPORT: a filter of a Filter.db file that another program has written. The file is read in a thread of the pool,
 * twice: its bits are counted, since the parameters that it lacks follow from them, then they are loaded. */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "bf_host.h"
#include "bf_out.h"
#include "bloom_state.h"
#include "content.h"
#include "filterdb.h"
#include "handlers.h"
#include "rcu.h"

#define PATH_MAX_BYTES 4095

struct import {
    struct command_job *job;
    struct slice name;
    const char *path; /* below import-dir */
    struct bf_import request;
    struct filter_file file;
};

/* ---- the file ---- */

static void refuse(const struct import *import, const char *reason)
{
    reply_errorf(&import->job->reply, "ERR '%s': %s", import->path, reason);
}

static const char *refusal(int rc)
{
    if (rc == -EINVAL)
        return "only regular files below import-dir can be imported, by their path from there, without '.' and '..'";
    return rc == -ELOOP ? "symbolic links are not followed" : strerror(-rc);
}

/* False after an error reply. */
static bool open_file(struct import *import)
{
    const char *directory = server_config(import->job->server)->filters.import_dir;
    struct slice given = import->request.variant;
    enum bloom_variant variant;
    struct errbuf err = {""};
    int fd;
    if (given.len ? filterdb_variant_parse(given.ptr, given.len, &variant) != FILTERDB_OK
                  : filterdb_variant_from_path(import->path, &variant, &err) != FILTERDB_OK)
        return reply_errorf(&import->job->reply, "ERR %s; use VARIANT for a file with another name",
                            given.len ? "the variant must be na, me or ka" : err.text);
    int rc = fs_open_beneath(directory, import->path, &fd);
    if (rc != 0) {
        refuse(import, refusal(rc));
        return false;
    }
    if (filter_file_adopt(&import->file, fsops_posix(), fd, variant, &err) == 0)
        return true;
    refuse(import, err.text);
    return false;
}

static bool decide_params(const struct import *import, const struct bloom_state *state, struct bloom_params *params)
{
    const struct bf_import *request = &import->request;
    if (state->bits_set == state->bits) {
        refuse(import, "every bit is set: this filter would answer 'present' to everything");
        return false;
    }
    filter_file_params(&import->file.shape, state, params);
    params->key = filterdb_key_of_path(import->path, &(size_t){0});
    if (request->capacity) {
        params->capacity = request->capacity;
        params->error_rate = filter_file_rate(&import->file.shape, request->capacity);
    }
    if (request->error_rate > 0)
        params->error_rate = request->error_rate;
    return true;
}

/* ---- the filter ---- */

/* Reads without holding up grace periods; the entry is not published yet. */
static bool load(struct import *import, struct entry *entry, const struct bloom_state *state)
{
    struct bloom_layer_view view;
    rcu_reader_offline();
    bloom_filter_expect_fill(entry_filter(entry));
    bloom_filter_layer(entry_filter(entry), 0, &view);
    int rc = filter_file_read(&import->file, 0, view.shape.nwords, view.words);
    bloom_filter_set_items(entry_filter(entry), 0, (uint64_t)llround(state->estimated_items));
    rcu_reader_online();
    if (rc == 0)
        return true;
    refuse(import, fs_error_text(rc));
    registry_abandon(import->job->server->registry, entry);
    return false;
}

static void import_file(struct import *import)
{
    const struct content_publication publication = {
        .how = {.only_new = !import->request.replace, .event = "bloom.load"}};
    struct bloom_params params;
    struct bloom_state state;
    struct entry *entry;
    rcu_reader_offline();
    int rc = filter_file_state(&import->file, NULL, NULL, &state);
    rcu_reader_online();
    if (rc != 0)
        refuse(import, fs_error_text(rc));
    else if (decide_params(import, &state, &params) &&
             content_prepare(import->job, import->name, &params, &import->file.shape, 1, &entry) &&
             load(import, entry, &state))
        content_finish(import->job, entry, &publication, BF_EXISTS);
}

static void import_job(struct command_job *job)
{
    const struct job_args *args = job->data;
    const struct bf_args words = bf_args_of_job(args, "bf.import");
    struct import import = {.job = job, .name = args->argv[1], .file = {.fd = -1}};
    char path[PATH_MAX_BYTES + 1];
    struct errbuf error;
    if (!bf_read_import(&words, &import.request, &error)) {
        reply_error(&job->reply, error.text);
        return;
    }
    if (server_config(job->server)->filters.import_dir[0] == '\0') {
        reply_error(&job->reply, "ERR BF.IMPORT needs the setting import-dir, the directory of files to import");
        return;
    }
    if (args->argv[2].len > PATH_MAX_BYTES || memchr(args->argv[2].ptr, '\0', args->argv[2].len)) {
        reply_error(&job->reply, "ERR the path is too long, or has a byte 0 in it");
        return;
    }
    memcpy(path, args->argv[2].ptr, args->argv[2].len);
    path[args->argv[2].len] = '\0';
    import.path = path;
    if (!import.request.replace && registry_lookup(job->server->registry, import.name)) {
        reply_error(&job->reply, BF_EXISTS);
        return;
    }
    if (!open_file(&import))
        return;
    uint64_t bytes = 8 * import.file.shape.nwords;
    if (content_large_begin(job, bytes)) {
        import_file(&import);
        content_large_end(job, bytes);
    }
    filter_file_close(&import.file);
}

void cmd_bf_import(struct command_ctx *ctx)
{
    command_defer_arguments(ctx, REGISTRY_MAX_NAME, import_job);
}
