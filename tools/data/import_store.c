/* Opens a data directory to add filters. */
#include "import.h"

#include <stdio.h>

#include "log_reader.h"

#define LOG_HAS_CHANGES 100 /* no status of the reader */

static void on_report(void *ctx, enum store_severity severity, const char *text)
{
    fprintf(stderr, "bloomery %s: %s%s\n", (const char *)ctx, severity == STORE_WARNING ? "warning: " : "", text);
}

struct look {
    const char *command;
    struct store *store;
};

static void on_log_report(void *ctx, enum store_severity severity, const char *text)
{
    on_report((void *)((struct look *)ctx)->command, severity, text);
}

static int on_control(void *ctx, uint64_t number, const struct log_control *control, struct errbuf *err)
{
    const struct look *look = ctx;

    (void)control, (void)err;
    return number > store_checkpoint(look->store).control ? LOG_HAS_CHANGES : 0;
}

static int check_log(const char *command, const char *datadir, struct store *store)
{
    const struct store_checkpoint checkpoint = store_checkpoint(store);
    struct look look = {command, store};
    struct log_reader_options options = {.dir = datadir,
                                         .from = checkpoint.log,
                                         .reached = checkpoint.frame,
                                         .accepted = checkpoint.accepted,
                                         .report = on_log_report,
                                         .on_control = on_control,
                                         .ctx = &look};
    struct log_reader_summary summary = {0};
    struct log_reader *reader = NULL;
    struct errbuf err = {{0}};
    int rc = log_reader_open(&options, &reader, &summary, &err);

    log_reader_close(reader);
    if (rc == LOG_HAS_CHANGES || (rc == 0 && summary.adds > 0))
        return tool_failed(command,
                           "%s: the log has changes that are not in the files yet; start the daemon and stop it by "
                           "SHUTDOWN SAVE first",
                           datadir);
    return rc == 0 ? TOOL_OK : tool_failed(command, "%s", err.text);
}

const char *import_outcome(int status)
{
    return status == STORE_IN_DOUBT ? "'bloomery list' shows whether the import is there" : "nothing was imported";
}

int import_store_open(const char *command, const char *datadir, struct store **store_out)
{
    struct store_options options = {.report = on_report, .report_ctx = (void *)command};
    struct errbuf err = {{0}};
    int rc;

    for (unsigned tries = 0;
         (rc = store_open(datadir, &options, store_out, &err)) == STORE_LOCKED && tool_lock_waits(&tries);)
        ;
    if (rc == STORE_LOCKED)
        return tool_failed(command, "%s; stop the daemon first", err.text);
    if (rc != 0)
        return tool_failed(command, "%s", err.text);
    return check_log(command, datadir, *store_out);
}
