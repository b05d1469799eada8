/* bloomery: the operator's tool. This file holds the table of subcommands and the help made from it. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "fsops.h"
#include "tool.h"
#include "version.h"

static const struct tool_command commands[] = {
    {
        .name = "import",
        .arguments = "DATADIR NAME FILE [--variant na|me|ka] [--capacity N] [--error P]",
        .summary = "Adds a Filter.db file of Cassandra or ScyllaDB to a data directory.",
        .help = "The daemon must not be running on DATADIR, which is created if it does not exist. NAME must be free. The\n"
                "filter becomes one of fixed size; its bits are taken over as they are.\n"
                "\n"
                "  --variant V   the layout of FILE: na (Cassandra 4.0 and later), me (Cassandra 3.x, ScyllaDB mc to mt) or\n"
                "                ka (before Cassandra 3.0, ScyllaDB ka and la). By default it is taken from the SSTable\n"
                "                version in FILE's name, as in nb-1-big-Filter.db or ks-cf-ka-1-Filter.db.\n"
                "  --capacity N  how many items the filter may hold before adds are refused. By default the number of items\n"
                "                its bits suggest, or bits * ln 2 / k (the number it would be made for) if that is more.\n"
                "  --error P     the false-positive rate to state for it, 0 < P < 1. By default the rate at its capacity.\n",
        .run = tool_import,
    },
    {
        .name = "export",
        .arguments = "DATADIR NAME DIRECTORY",
        .summary = "Takes a filter out of a data directory as Filter.db files.",
        .help = "The daemon must not be running on DATADIR. Writes DIRECTORY/<layout>-<layer>-big-Filter.db for each layer as the\n"
                "last save has it, whether it has a file of its own there or is in a pack; what is in the log is not in it. The\n"
                "bytes are compared with their checksums; files that are there are not replaced.\n",
        .run = tool_export,
    },
    {
        .name = "unpack",
        .arguments = "PACK DIRECTORY",
        .summary = "Takes all filters out of a pack, without its MANIFEST.",
        .help = "For when the MANIFEST is lost: a pack says by itself which filters are in it. Makes DIRECTORY and writes\n"
                "DIRECTORY/<name>-<id>/<layout>-<layer>-big-Filter.db for every record that is whole. Without the MANIFEST nothing\n"
                "says which records have been superseded: of two packs, the one with the higher number is newer.\n",
        .run = tool_unpack,
    },
    {
        .name = "check",
        .arguments = "DATADIR",
        .summary = "Verifies a data directory: MANIFEST, files, log. Changes nothing.",
        .help = "The daemon must not be running on DATADIR. Every byte that is needed is read and compared with its checksum.\n"
                "Prints what there is; what is damaged or missing goes to stderr, a line each. Exit status 0: all is whole (the\n"
                "tail of a log that was not synced when the daemon ended is no damage); 1: something is not.\n"
                "\n"
                "A damaged file costs its own filter only: the daemon quarantines it. A damaged log stops the start, until it\n"
                "is brought back from a backup or the loss accepted: bloomeryd --aof-load-damaged yes.\n",
        .run = tool_check,
    },
    {
        .name = "bench",
        .arguments = "WORKLOAD [options]",
        .summary = "Puts load on a RESP server and measures throughput and latency.",
        .help = "WORKLOAD is exists, add, mexists, madd, ping, get, set, or a command line of your own in quotes, in which\n"
                "{filter} stands for a filter's name, {item} for the next item and {items} for a batch of them.\n"
                "\n"
                "Server:  --host H (127.0.0.1), --port P (6379), --unix PATH, --password WORD (or $REDISCLI_AUTH), --resp 2|3\n"
                "Load:    --connections N (50), --pipeline N (1), --threads N (1), --time SECONDS (10), --warmup SECONDS (1),\n"
                "         --requests N (instead of a time)\n"
                "         --rate N      requests per second that are due whatever the server does; latencies then run from\n"
                "                       the moment a request was due, to that when the kernel has the reply; what this\n"
                "                       program itself is late by is shown apart. Without a rate each connection waits for\n"
                "                       its replies.\n"
                "         --spin        with --rate: never sleeps, so that nothing is late because this program had to be\n"
                "                       woken; takes a processor per thread. What is noticed 0.1 ms late nevertheless, as the\n"
                "                       processor was taken away, is counted and not sent.\n"
                "Items:   --items N (1000000) to choose from, --start N (0) number of the first, --size BYTES or MIN-MAX (16),\n"
                "         --order uniform|sequential|zipf[:EXPONENT] (uniform; sequential, all new, for add and madd),\n"
                "         --hits SHARE (1) of queries for items that are among them; the others are for items never added,\n"
                "         --batch N (100) items of {items}, --seed N (1)\n"
                "Filters: --filter NAME (bench), --filters N (1): one of NAME:0 .. NAME:<N-1> at random,\n"
                "         --reserve CAPACITY[:RATE]  deletes NAME and reserves it anew, not scaling,\n"
                "         --load        adds all items before it measures\n"
                "Output:  --json FILE, --hdr FILE (percentiles in HdrHistogram's text form); FILE - is stdout,\n"
                "         --progress    shows a line on stderr once a second, also when that is not a terminal\n",
        .run = tool_bench,
    },
};

#define NCOMMANDS (sizeof(commands) / sizeof(*commands))

static void print_help(void)
{
    printf("bloomery %s: work on Bloomery's data directories and Filter.db files, and a load generator\n\n", BLOOMERY_VERSION);
    printf("Usage: bloomery COMMAND ...\n\n");
    for (size_t i = 0; i < NCOMMANDS; i++)
        printf("  %-10s %s\n", commands[i].name, commands[i].summary);
    printf("\n  help COMMAND, --help, --version\n\n");
    printf("Exit status: 0 done, 1 failed (the reason is on stderr), 2 not understood.\n");
}

static const struct tool_command *find_command(const char *name)
{
    for (size_t i = 0; i < NCOMMANDS; i++) {
        if (strcmp(commands[i].name, name) == 0)
            return &commands[i];
    }
    fprintf(stderr, "bloomery: there is no command '%s'; see 'bloomery --help'\n", name);
    return NULL;
}

static int help(const char *name)
{
    const struct tool_command *command = find_command(name);

    if (!command)
        return TOOL_USAGE;
    printf("Usage: bloomery %s %s\n\n%s\n%s", command->name, command->arguments, command->summary, command->help);
    return TOOL_OK;
}

/* "--help" anywhere among a command's arguments, or "-h" as the first of them. */
static bool asks_for_help(int argc, char **argv)
{
    for (int i = 2; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (strcmp(argv[i], "--help") == 0 || (i == 2 && strcmp(argv[i], "-h") == 0))
            return true;
    }
    return false;
}

static int run(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "bloomery: a command is missing; see 'bloomery --help'\n");
        return TOOL_USAGE;
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("bloomery %s\n", BLOOMERY_VERSION);
        return TOOL_OK;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0) {
        if (argc > 2)
            return help(argv[2]);
        print_help();
        return TOOL_OK;
    }
    const struct tool_command *command = find_command(argv[1]);
    if (!command)
        return TOOL_USAGE;
    if (asks_for_help(argc, argv))
        return help(argv[1]);
    int status = command->run(argc - 1, argv + 1);
    if (status == TOOL_USAGE)
        fprintf(stderr, "Usage: bloomery %s %s\nSee 'bloomery help %s'.\n", command->name, command->arguments, command->name);
    return status;
}

/* What could not be printed has not been done. */
int main(int argc, char **argv)
{
    int status = fs_fill_standard_descriptors();
    if (status != 0) {
        fprintf(stderr, "bloomery: /dev/null: %s\n", strerror(-status));
        return TOOL_FAILED;
    }
    status = run(argc, argv);
    bool failed = ferror(stdout);
    errno = 0;
    if ((fflush(stdout) != 0 || failed) && status == TOOL_OK) {
        fprintf(stderr, "bloomery: cannot write to the standard output%s%s\n", errno ? ": " : "",
                errno ? strerror(errno) : "");
        return TOOL_FAILED;
    }
    return status;
}
