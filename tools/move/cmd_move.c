/* bloomery move: the options and the summary. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tool.h"
#include "move.h"
#include "log_text.h"

#define COMMAND "move"

enum { MOVE_INCOMPLETE = 3 }; /* exit status: some filters were not moved */

static int get_seconds(const struct tool_args *args, const char *option, uint64_t min, uint64_t preset, int64_t *ms_out)
{
    uint64_t seconds = preset;
    int status = tool_number(args, option, min, 1000000, &seconds);
    *ms_out = (int64_t)seconds * 1000;
    return status;
}

/* ---- servers ---- */

/* The first line of the file. */
static int read_password_file(const char *path, struct server_url *url)
{
    char line[SERVER_URL_MAX];
    FILE *file = strcmp(path, "-") == 0 ? stdin : fopen(path, "re");
    if (!file)
        return tool_failed(COMMAND, "%s: %s", path, strerror(errno));
    bool good = fgets(line, sizeof(line), file) != NULL;
    if (file != stdin)
        fclose(file);
    if (!good)
        return tool_failed(COMMAND, "%s: there is no password in it", path);
    line[strcspn(line, "\r\n")] = '\0';
    return server_url_set_password(url, line) == 0 ? TOOL_OK : tool_failed(COMMAND, "%s: it is too long", path);
}

/* The server of --from or --to. Its password is in the address, in the file of `file_option` or in `variable`. */
static int get_server(const struct tool_args *args, const char *option, const char *file_option, const char *variable,
                      struct server_url *url)
{
    struct errbuf err = {""};
    const char *text = tool_option(args, option), *file = tool_option(args, file_option),
               *environment = getenv(variable);
    if (!text)
        return tool_misused(COMMAND, "%s is missing", option);
    if (server_url_read(url, text, &err) != 0)
        return tool_misused(COMMAND, "%s: %s", option, err.text);
    if (file)
        return read_password_file(file, url);
    if (!url->address.password && environment && server_url_set_password(url, environment) != 0)
        return tool_failed(COMMAND, "%s is too long", variable);
    if (url->address.user && !url->address.password)
        return tool_misused(COMMAND, "%s: the user '%s' has no password; put it into the address, $%s or %s", option,
                            url->address.user, variable, file_option);
    return TOOL_OK;
}

/* ---- the summary ---- */

static void print_count(const char *label, uint64_t n, const char *what)
{
    if (n)
        printf("%-8s %" PRIu64 "%s\n", label, n, what);
}

static void print_summary(const struct move_options *options, const struct move_summary *s)
{
    double seconds = s->seconds > 0.001 ? s->seconds : 0.001;
    printf("%-8s %s, %" PRIu64 " bytes", options->dry_run ? "to move" : "moved",
           log_count(s->filters[MOVE_MOVED], "filter").text, s->bytes);
    if (!options->dry_run)
        printf(" in %.1f s (%.0f/s, %.1f MB/s)", s->seconds, (double)s->filters[MOVE_MOVED] / seconds,
               (double)s->bytes / seconds / 1e6);
    putchar('\n');
    print_count("there", s->filters[MOVE_THERE], " that the target already had");
    print_count("skipped", s->filters[MOVE_TAKEN], " whose names the target has with another type, numbers or items");
    print_count("skipped", s->filters[MOVE_UNREAD], " that the source refused to send");
    print_count("skipped", s->filters[MOVE_REFUSED], " that the target refused");
    print_count("skipped", s->filters[MOVE_CHANGING], " that grew or changed whenever they were read");
    print_count("differ", s->filters[MOVE_DIFFERS], " between the two servers");
    print_count("gone", s->filters[MOVE_GONE], " that were deleted or expired during the move");
    print_count("left", s->filters[MOVE_LEFT],
                " out: temporary filters of interrupted runs in the source (bloomery-move:...)");
    print_count("changed", s->changed, " of the moved filters got items during the move: --replace moves them again");
}

static int exit_status(int status, const struct move_summary *s)
{
    if (s->signal)
        return 128 + s->signal;
    if (status != 0)
        return TOOL_FAILED;
    uint64_t incomplete = s->filters[MOVE_TAKEN] + s->filters[MOVE_UNREAD] + s->filters[MOVE_REFUSED] +
                          s->filters[MOVE_CHANGING] + s->filters[MOVE_DIFFERS];
    return incomplete ? MOVE_INCOMPLETE : TOOL_OK;
}

static void warn_of_keys(const struct move_options *options)
{
    char ids[MOVE_KEYS_SIZE];
    struct errbuf err;
    if (move_missing_keys(options, ids, sizeof(ids), &err) > 0)
        tool_failed(COMMAND, MOVE_KEYS_WARNING, ids);
}

/* Moves once. An exit code, with the reason in `err` if the run ended early. */
static int move_once(const struct move_options *options, bool all_databases, struct move_summary *summary,
                     struct errbuf *err)
{
    int status = (all_databases ? move_all_databases : move_run)(options, summary, err);
    if (summary->signal)
        errbuf_set(err, "interrupted; run the same command to continue");
    return exit_status(status, summary);
}

static int move_filters(const struct move_options *options, bool all_databases)
{
    struct move_summary summary;
    struct errbuf err = {""};
    int code = move_once(options, all_databases, &summary, &err);
    uint64_t seen = 0;
    for (int i = 0; i < MOVE_OUTCOMES; i++)
        seen += summary.filters[i];
    if (!err.text[0] || seen > 0 || summary.signal)
        print_summary(options, &summary);
    fflush(stdout);
    if (err.text[0])
        tool_failed(COMMAND, "%s", err.text);
    else if (!options->dry_run)
        warn_of_keys(options);
    return code;
}

/* The source has no filters that this move leaves out, for it will be read-only, and the target has their keys. */
static int check_whole(const struct move_options *options, bool all_databases, struct errbuf *err)
{
    char ids[MOVE_KEYS_SIZE];
    int64_t other;
    int found = all_databases ? 0 : move_other_database(options, &other, err);
    if (found > 0)
        return errbuf_fail(err, -EINVAL, "the source has keys in database %" PRId64 ", too: use --all-databases",
                           other);
    if (found == 0)
        found = move_needed_keys(options, ids, sizeof(ids), err);
    if (found > 0)
        errbuf_set(err, "KEYED filters of the source need keys that the target's key file lacks: %s", ids);
    return found > 0 ? -EINVAL : found;
}

/* Moves while the writers of the source wait. What a command that had begun before them has changed is found by a
 * second run, which compares all filters. */
static int move_paused(const struct move_options *options, bool all_databases)
{
    struct move_summary summary = {.signal = 0}, second;
    struct errbuf err = {""};
    int code = TOOL_FAILED, closed = 0;
    struct pause *pause = check_whole(options, all_databases, &err) == 0 ? pause_begin(options, &err) : NULL;
    if (pause) {
        code = move_once(options, all_databases, &summary, &err);
        print_summary(options, &summary);
        if (code == TOOL_OK)
            code = move_once(options, all_databases, &second, &err);
        if (code == TOOL_OK && check_whole(options, all_databases, &err) != 0)
            code = TOOL_FAILED;
        closed = code == TOOL_OK ? pause_close_source(pause, &err) : 0;
        code = closed < 0 ? TOOL_FAILED : code;
        double seconds = pause_end(pause, closed < 0, &err);
        printf("%-8s writers of the source waited for %.1f s; %s\n", "paused", seconds,
               closed > 0 ? "it is read-only now, and everything that it has acknowledged is in the target"
                          : "now it continues as before");
    }
    fflush(stdout);
    if (err.text[0])
        tool_failed(COMMAND, "%s", err.text);
    return code;
}

/* Options that contradict each other. */
static int check_options(const struct tool_args *args)
{
    static const char *const without[] = {"--dry-run", "--match"};
    for (size_t i = 0; i < 2; i++)
        if (tool_option(args, "--pause") && tool_option(args, without[i]))
            return tool_misused(COMMAND, "--pause and %s exclude each other", without[i]);
    return TOOL_OK;
}

static int run_move(const struct tool_args *args)
{
    static struct server_url from, to;
    struct tls_context *tls = NULL;
    uint64_t jobs = 4;
    bool all_databases = tool_option(args, "--all-databases") != NULL;
    bool pauses = tool_option(args, "--pause") != NULL;
    struct move_options move = {.from = &from,
                                .to = &to,
                                .match = tool_option(args, "--match"),
                                .dry_run = tool_option(args, "--dry-run") != NULL,
                                .replace = tool_option(args, "--replace") != NULL,
                                .verify = pauses || tool_option(args, "--verify"),
                                .progress = tool_option(args, "--progress") != NULL};
    int status = check_options(args);
    STEP(status, get_server(args, "--from", "--from-password-file", "BLOOMERY_FROM_PASSWORD", &from));
    STEP(status, get_server(args, "--to", "--to-password-file", "BLOOMERY_TO_PASSWORD", &to));
    if (status == TOOL_OK && all_databases && (from.has_database || to.has_database))
        status = tool_misused(COMMAND, "--all-databases needs addresses without a database");
    if (status == TOOL_OK && (tool_number(args, "--jobs", 1, MOVE_MAX_JOBS, &jobs) ||
                              get_seconds(args, "--timeout", 1, 30, &move.timeout_ms) ||
                              get_seconds(args, "--retry", 0, 60, &move.retry_ms)))
        status = TOOL_USAGE;
    STEP(status, tls_options_read(args, from.with_tls || to.with_tls, &tls));
    if (status != TOOL_OK)
        return status;
    from.address.tls = from.with_tls ? tls : NULL;
    to.address.tls = to.with_tls ? tls : NULL;
    move.jobs = (unsigned)jobs;
    server_url_hide((char *)(uintptr_t)tool_option(args, "--from")); /* other users can read the arguments */
    server_url_hide((char *)(uintptr_t)tool_option(args, "--to"));
    status = (pauses ? move_paused : move_filters)(&move, all_databases);
    tls_context_destroy(tls);
    return status;
}

static const struct tool_option options[] = {
    {.name = "--from",
     .value = "URL",
     .doc = "The source: redis://[user:password@]host[:port][/database], rediss://... with TLS, or "
            "unix://[user:password@]/path[?db=database]; %XX for special bytes.",
     .group = "Servers"},
    {.name = "--to", .value = "URL", .doc = "The target."},
    {.name = "--from-password-file",
     .value = "FILE",
     .doc = "The source's password is the first line of FILE (- is stdin). Other users can briefly see a password in "
            "the command line."},
    {.name = "--to-password-file", .value = "FILE", .doc = "The target's."},
    {.name = "--all-databases",
     .doc = "Moves the filters of each database of the source into the database of the same number; the default is "
            "the address's database, or 0.",
     .group = "What"},
    {.name = "--match", .value = "GLOB", .doc = "Moves filters with matching names, as in SCAN."},
    {.name = "--replace",
     .doc = "Replaces a filter of the target that differs from the source's; do not use it after clients have added "
            "items to the target."},
    {.name = "--dry-run", .doc = "Shows the plan for each filter, and changes nothing."},
    {.name = "--verify",
     .doc = "Compares BF.INFO or CF.INFO, and the answers to 1,000 random items, also of existing filters."},
    {.name = "--pause",
     .doc = "Holds back the source's writers meanwhile (CLIENT PAUSE WRITE), verifies, and, if everything is in the "
            "target, makes a Bloomery source read-only and disconnects its clients: no acknowledged write is lost. "
            "Otherwise the source continues as before, as also after an interruption."},
    {.name = "--jobs", .value = "N", .doc = "Concurrent filters, or batches of small filters (4).", .group = "How"},
    {.name = "--timeout",
     .value = "SECONDS",
     .doc = "Time for a reply, extended for long replies: 64 KB per second (30)."},
    {.name = "--retry", .value = "SECONDS", .doc = "Time to wait for an unreachable server (60)."},
    {.name = "--progress", .doc = "Shows progress on stderr even if stderr is not a terminal."},
    TLS_OPTIONS,
    {.name = NULL},
};

const struct tool_command tool_move_command = {
    .name = COMMAND,
    .arguments = "--from redis://... --to redis://...",
    .summary = "Copies the filters of a running server (RedisBloom, valkey-bloom or Bloomery) to another.",
    .text = "The command only reads the source, except with --pause. Start an interrupted run again to continue: a "
            "filter counts as moved if the target has its name with the same BF.INFO or CF.INFO and the same bits. "
            "$BLOOMERY_FROM_PASSWORD and $BLOOMERY_TO_PASSWORD can have the passwords.\n\nstderr has a line for each "
            "filter that is not moved, stdout a summary; names have %XX for all bytes but letters, digits, _ - and "
            "dot.",
    .options = options,
    .examples = "bloomery move --from redis://10.0.0.1 --to unix:///run/bloomery.sock --match 'seen:*' --verify\n"
                "bloomery move --from redis://old --to redis://new --all-databases --pause",
    .exit_status =
        "0: all filters are in the target. 1: the run ended early; the reason is on stderr. 2: wrong arguments. 3: "
        "the run is complete, but some filters were skipped or differ. 130 or 143: interrupted.",
    .run = run_move,
};
