/* `bloomery move`: the options and the summary. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../tls_options.h"
#include "../tool.h"
#include "move.h"

#define COMMAND "move"

enum { MOVE_INCOMPLETE = 3 }; /* exit status: all filters have been looked at, and some are not moved */

enum option {
    OPT_FROM,
    OPT_TO,
    OPT_FROM_PASSWORD_FILE,
    OPT_TO_PASSWORD_FILE,
    OPT_ALL_DATABASES,
    OPT_MATCH,
    OPT_JOBS,
    OPT_TIMEOUT,
    OPT_RETRY,
    OPT_DRY_RUN,
    OPT_REPLACE,
    OPT_VERIFY,
    OPT_PROGRESS,
    OPT_COUNT,
};

/* An option as it is given; its value NULL: it is not. */
struct given {
    const char *name, *value;
};

static int get_seconds(const struct given *option, uint64_t min, uint64_t preset, int64_t *ms_out)
{
    uint64_t seconds = preset;
    if (option->value && !tool_parse_u64(option->value, min, 1000000, &seconds))
        return tool_misused(COMMAND, "%s '%s': a number of seconds from %llu to 1000000 is needed", option->name,
                            option->value, (unsigned long long)min);
    *ms_out = (int64_t)seconds * 1000;
    return TOOL_OK;
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

static int get_server(const struct given *option, const struct given *file, const char *variable,
                      struct server_url *url)
{
    struct errbuf err = {""};
    const char *environment = getenv(variable);
    if (!option->value)
        return tool_misused(COMMAND, "%s is missing", option->name);
    if (server_url_read(url, option->value, &err) != 0)
        return tool_misused(COMMAND, "%s: %s", option->name, err.text);
    if (file->value)
        return read_password_file(file->value, url);
    if (!url->address.password && environment && server_url_set_password(url, environment) != 0)
        return tool_failed(COMMAND, "%s is too long", variable);
    if (url->address.user && !url->address.password)
        return tool_misused(COMMAND, "%s: the user '%s' has no password; it goes into the address, $%s or %s",
                            option->name, url->address.user, variable, file->name);
    return TOOL_OK;
}

/* From here on nobody reads the passwords by looking at this process's arguments. */
static void hide_passwords(const struct given *options)
{
    server_url_hide(
        (char *)(uintptr_t)options[OPT_FROM].value); /* these are the process's arguments, which are its own */
    server_url_hide((char *)(uintptr_t)options[OPT_TO].value);
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
    printf("%-8s %" PRIu64 " filters, %" PRIu64 " bytes", options->dry_run ? "to move" : "moved",
           s->filters[MOVE_MOVED], s->bytes);
    if (!options->dry_run)
        printf(" in %.1f s (%.0f/s, %.1f MB/s)", s->seconds, (double)s->filters[MOVE_MOVED] / seconds,
               (double)s->bytes / seconds / 1e6);
    putchar('\n');
    print_count("there", s->filters[MOVE_THERE], " that the target had already");
    print_count("skipped", s->filters[MOVE_TAKEN], " whose names the target has for something else");
    print_count("skipped", s->filters[MOVE_UNREAD], " that the source refused to give");
    print_count("skipped", s->filters[MOVE_REFUSED], " that the target refused to take");
    print_count("skipped", s->filters[MOVE_CHANGING], " that grew whenever they were read");
    print_count("differ", s->filters[MOVE_DIFFERS], " in what the two servers answer");
    print_count("gone", s->filters[MOVE_GONE], " that were deleted or expired meanwhile");
    print_count("changed", s->changed,
                " of those moved, to which items were added while they were read: --replace moves them again");
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

static int move_filters(const struct move_options *options, bool all_databases)
{
    struct move_summary summary;
    struct errbuf err = {""};
    int status = (all_databases ? move_all_databases : move_run)(options, &summary, &err);
    uint64_t seen = 0;
    for (int i = 0; i < MOVE_OUTCOMES; i++)
        seen += summary.filters[i];
    if (status == 0 || seen > 0 || summary.signal)
        print_summary(options, &summary);
    fflush(stdout);
    if (summary.signal)
        tool_failed(COMMAND, "interrupted; the same command goes on");
    else if (status != 0)
        tool_failed(COMMAND, "%s", err.text);
    return exit_status(status, &summary);
}

static int run(const struct tool_args *args)
{
    static const char *const names[OPT_COUNT] = {
        "--from",
        "--to",
        "--from-password-file",
        "--to-password-file",
        "--all-databases",
        "--match",
        "--jobs",
        "--timeout",
        "--retry",
        "--dry-run",
        "--replace",
        "--verify",
        "--progress",
    };
    static struct server_url from, to;
    struct tls_context *tls = NULL;
    struct given options[OPT_COUNT];
    uint64_t jobs = 4;
    for (int i = 0; i < OPT_COUNT; i++)
        options[i] = (struct given){names[i], tool_option(args, names[i])};
    struct move_options move = {.from = &from, .to = &to};
    int status = get_server(&options[OPT_FROM], &options[OPT_FROM_PASSWORD_FILE], "BLOOMERY_FROM_PASSWORD", &from);
    if (status == TOOL_OK)
        status = get_server(&options[OPT_TO], &options[OPT_TO_PASSWORD_FILE], "BLOOMERY_TO_PASSWORD", &to);
    bool all_databases = options[OPT_ALL_DATABASES].value != NULL;
    if (status == TOOL_OK && all_databases && (from.has_database || to.has_database))
        status = tool_misused(COMMAND, "--all-databases goes with addresses that name no database");
    if (status == TOOL_OK && options[OPT_JOBS].value &&
        !tool_parse_u64(options[OPT_JOBS].value, 1, MOVE_MAX_JOBS, &jobs))
        status = tool_misused(COMMAND, "--jobs '%s': a number from 1 to %d is needed", options[OPT_JOBS].value,
                              MOVE_MAX_JOBS);
    if (status == TOOL_OK)
        status = get_seconds(&options[OPT_TIMEOUT], 1, 30, &move.timeout_ms);
    if (status == TOOL_OK)
        status = get_seconds(&options[OPT_RETRY], 0, 60, &move.retry_ms);
    if (status == TOOL_OK)
        status = tls_options_read(args, from.with_tls || to.with_tls, &tls);
    if (status != TOOL_OK)
        return status;
    from.address.tls = from.with_tls ? tls : NULL;
    to.address.tls = to.with_tls ? tls : NULL;
    move.jobs = (unsigned)jobs;
    move.match = options[OPT_MATCH].value;
    move.dry_run = options[OPT_DRY_RUN].value != NULL;
    move.replace = options[OPT_REPLACE].value != NULL;
    move.verify = options[OPT_VERIFY].value != NULL;
    move.progress = options[OPT_PROGRESS].value || isatty(STDERR_FILENO);
    hide_passwords(options);
    status = move_filters(&move, all_databases);
    tls_context_destroy(tls);
    return status;
}

static const struct tool_option options[] = {
    {.name = "--from",
     .value = "URL",
     .doc = "The source: redis://[user:password@]host[:port][/database], rediss://... with TLS, or "
            "unix://[user:password@]/path[?db=database]; "
            "%XX "
            "for bytes that would not be understood.",
     .group = "Servers"},
    {.name = "--to", .value = "URL", .doc = "The target."},
    {.name = "--from-password-file",
     .value = "FILE",
     .doc =
         "The source's password is the first line of FILE (- is stdin). Passwords are better kept out of the command "
         "line, where they can be seen for a moment."},
    {.name = "--to-password-file", .value = "FILE", .doc = "The target's."},
    {.name = "--all-databases",
     .doc =
         "Those of each database of the source, into the database of the same number; without it, of the one that the "
         "address names, or 0.",
     .group = "What"},
    {.name = "--match", .value = "GLOB", .doc = "Filters whose names match, as in SCAN."},
    {.name = "--replace",
     .doc = "Replaces a filter of the target that differs from the source's; not for a target to which clients add "
            "already."},
    {.name = "--dry-run", .doc = "Says for each filter what would be done, and does nothing."},
    {.name = "--verify",
     .doc = "Compares BF.INFO and the answers to 1,000 random items, also of filters that are there."},
    {.name = "--jobs", .value = "N", .doc = "Filters at a time, or batches of small ones (4).", .group = "How"},
    {.name = "--timeout", .value = "SECONDS", .doc = "Without a byte of an answer (30)."},
    {.name = "--retry", .value = "SECONDS", .doc = "How long a server that is away is waited for (60)."},
    {.name = "--progress", .doc = "Shows a line on stderr also when that is not a terminal."},
    TLS_OPTIONS,
    {.name = NULL},
};

const struct tool_command tool_move_command = {
    .name = COMMAND,
    .arguments = "--from redis://... --to redis://...",
    .summary = "Copies the filters of a running server into another: RedisBloom, Bloomery.",
    .text =
        "The source is only read. A run that was interrupted, by whatever, goes on when it is started again: a filter "
        "that the target has with the same BF.INFO has been moved. Passwords can also be in $BLOOMERY_FROM_PASSWORD "
        "and $BLOOMERY_TO_PASSWORD.\n"
        "\n"
        "Each filter that is not moved is told on stderr, a summary on stdout; names have %XX for all bytes but "
        "letters, digits, _ - and dot.",
    .options = options,
    .examples = "bloomery move --from redis://10.0.0.1 --to unix:///run/bloomery.sock --match 'seen:*' --verify",
    .exit_status =
        "0: all filters are in the target. 1: it ended early; the reason is on stderr. 2: not understood. 3: it "
        "went through all of them, but some were skipped or differ. 130 or 143: it was interrupted.",
    .run = run,
};
